/* SPDX-License-Identifier: Apache-2.0
 *
 * error.c - the names and texts of codes, generated from the list in pawl.h.
 */
#include "engine.h"

const char *pawl_strerror(int code)
{
    switch (code) {
    case PAWL_OK:
        return "success";
#define X(name, value, text)                                                                       \
    case value:                                                                                    \
        return text;
        PAWL_ERRORS(X)
#undef X
    }
    return "unknown error code";
}

const char *pawl_errname(int code)
{
    switch (code) {
    case PAWL_OK:
        return "PAWL_OK";
#define X(name, value, text)                                                                       \
    case value:                                                                                    \
        return "PAWL_" #name;
        PAWL_ERRORS(X)
#undef X
    }
    return "PAWL_?";
}

const char *pawl_lost_text(int reason)
{
    switch (reason) {
#define X(name, value, text)                                                                       \
    case value:                                                                                    \
        return text;
        PAWL_LOST_REASONS(X)
#undef X
    }
    return "not lost";
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

const char *pawl_version(void)
{
    return TEXT(PAWL_VERSION_MAJOR) "." TEXT(PAWL_VERSION_MINOR) "." TEXT(PAWL_VERSION_PATCH);
}
