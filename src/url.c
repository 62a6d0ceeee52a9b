/* SPDX-License-Identifier: Apache-2.0
 *
 * url.c - SCHEME ":" REST ["?" KEY "=" VALUE {"&" KEY "=" VALUE}].
 *
 * REST stays as written; each engine parses REST itself. The REST of a wrapper (registry.h) has
 * whole URLs with their parameters, so the text after the scheme of a wrapper is not parsed. A
 * parameter that no engine has read is an error: a misspelt parameter must not pass unnoticed.
 */
#include <ctype.h>
#include <stdlib.h>

#include "core.h"
#include "registry.h"
#include "suggest.h"
#include "url.h"

void pawl__url_free(pawl_url *url)
{
    for (size_t i = 0; i < url->nparams; i++) {
        free(url->params[i].key);
        if (url->params[i].value)
            explicit_bzero(url->params[i].value, strlen(url->params[i].value));
        free(url->params[i].value);
    }
    free(url->params);
    free(url->asked);
    free(url->scheme);
    if (url->rest)
        explicit_bzero(url->rest, strlen(url->rest));
    free(url->rest);
    *url = (pawl_url){0};
}

/* How many bytes of a malformed text an error message may quote: the first word. The rest may be a
 * password. */
static int harmless(const char *text, size_t length)
{
    int word = 0;

    while (word < 40 && (size_t)word < length &&
           (isalnum((unsigned char)text[word]) || strchr("/.-_+", text[word])))
        word++;
    return word;
}

static int add_param(pawl_url *url, const char *text, size_t length, pawl_error *err)
{
    const char *equals = memchr(text, '=', length);
    pawl_param *params, *param;
    bool bad = false;

    if (!equals || equals == text)
        return pawl_error_set(err, PAWL_EINVAL,
                              "URL parameter '%.*s...' is not of the form key=value",
                              harmless(text, length), text);
    params = realloc(url->params, (url->nparams + 1) * sizeof *params);
    if (!params)
        return pawl_error_set(err, PAWL_ENOMEM, "out of memory");
    url->params = params;
    param = &params[url->nparams++];
    *param = (pawl_param){0};
    param->key = pawl__url_decode(text, (size_t)(equals - text), &bad);
    param->value = pawl__url_decode(equals + 1, length - (size_t)(equals - text) - 1, &bad);
    if (!bad && (!param->key || !param->value))
        return pawl_error_set(err, PAWL_ENOMEM, "out of memory");
    if (bad)
        return pawl_error_set(err, PAWL_EINVAL,
                              "URL parameter '%.*s' has a bad escape; write %%XX with hex digits",
                              harmless(text, (size_t)(equals - text)), text);
    for (size_t i = 0; i + 1 < url->nparams; i++)
        if (!strcmp(url->params[i].key, param->key))
            return pawl_error_set(err, PAWL_EINVAL, "URL parameter '%.60s' is given twice",
                                  param->key);
    return 0;
}

static int parse_params(pawl_url *url, const char *text, pawl_error *err)
{
    while (*text) {
        size_t length = strcspn(text, "&");
        int code = add_param(url, text, length, err);

        if (code)
            return code;
        text += length + (text[length] == '&');
    }
    return 0;
}

static int parse(pawl_url *url, const char *text, pawl_error *err)
{
    size_t scheme = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789+");
    const struct engine_entry *entry = pawl__registry_find(text, scheme);
    const char *rest = text + scheme + 1;
    int word = harmless(text, strlen(text));
    size_t length;

    if (scheme == 0 || text[scheme] != ':')
        return pawl_error_set(err, PAWL_EINVAL,
                              "'%.*s%s' is not a URL; write for example local: or "
                              "redis://localhost", word, text, text[word] ? "..." : "");
    url->scheme = entry ? strdup(entry->scheme) : strndup(text, scheme);
    if (!url->scheme)
        return pawl_error_set(err, PAWL_ENOMEM, "out of memory");
    length = entry && entry->form == PAWL_URL_WRAPS ? strlen(rest) : strcspn(rest, "?");
    url->rest = strndup(rest, length);
    if (!url->rest)
        return pawl_error_set(err, PAWL_ENOMEM, "out of memory");
    if (!rest[length])
        return 0;
    url->asked = calloc(1, sizeof *url->asked);
    if (!url->asked)
        return pawl_error_set(err, PAWL_ENOMEM, "out of memory");
    return parse_params(url, rest + length + 1, err);
}

int pawl__url_parse(pawl_url *ret, const char *text, pawl_error *err)
{
    pawl_url url = {0};
    int code;

    if (!text)
        return pawl_error_set(err, PAWL_EINVAL, "no URL given; write for example local:");
    code = parse(&url, text, err);
    if (code)
        pawl__url_free(&url);
    else
        *ret = url;
    return code;
}

int pawl__url_ms(const pawl_url *url, const char *key, int64_t *ret, pawl_error *err)
{
    const char *text = pawl_url_param(url, key);
    char *end;
    long long value;

    if (!text)
        return 0;
    value = strtoll(text, &end, 10);
    if (*end || end == text || value < 1 || value > 1000LL * 3600 * 24 * 365)
        return pawl_error_set(err, PAWL_EINVAL,
                              "URL parameter %s=%.40s: give a whole number above 0", key, text);
    *ret = value;
    return 0;
}

int pawl__url_all_used(const pawl_url *url, pawl_error *err)
{
    for (size_t i = 0; i < url->nparams; i++) {
        const char *key = url->params[i].key;
        const char *near = !url->params[i].used && url->asked
                               ? pawl__suggest(key, url->asked->key, url->asked->n) : NULL;

        if (near)
            return pawl_error_set(err, PAWL_EINVAL,
                                  "unknown URL parameter '%.60s' for %s: (did you mean '%s'? See "
                                  "pawl(7))", key, url->scheme, near);
        if (!url->params[i].used)
            return pawl_error_set(err, PAWL_EINVAL,
                                  "unknown URL parameter '%.60s' for %s: (see pawl(7))", key,
                                  url->scheme);
    }
    return 0;
}
