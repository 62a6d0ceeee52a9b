/* SPDX-License-Identifier: Apache-2.0
 *
 * use_header.c - a program that uses pawl.h, compiled as C99, C11 and C++, never run. The header is
 * included first and twice: it must not need other headers. The sizes of the structs, which the ABI
 * promises, are checked with array types, because C99 has no static assertions.
 */
#include <pawl.h>
#include <pawl-observe.h>
#include <pawl.h>
#include <pawl-observe.h>

#define PROMISE(name, condition) typedef char promise_##name[(condition) ? 1 : -1]

PROMISE(error_size, sizeof(pawl_error) == 256);
PROMISE(client_options_words, sizeof(pawl_client_options) == 13 * 8 || sizeof(void *) != 8);
PROMISE(lock_options_words, sizeof(pawl_lock_options) == 8 * 8 || sizeof(void *) != 8);
PROMISE(semaphore_options_words, sizeof(pawl_semaphore_options) == 5 * 8 || sizeof(void *) != 8);
PROMISE(size_first, offsetof(pawl_lock_options, size) == 0 && offsetof(pawl_info, size) == 0);
PROMISE(codes_negative, PAWL_EBUSY < 0 && PAWL_ENOMEM < 0 && PAWL_OK == 0);

static void lost(void *arg, pawl_lock *lock, int code)
{
    (void)arg;
    (void)lock;
    (void)code;
}

int use_header(void);

int use_header(void)
{
    promise_error_size one = {0};
    promise_client_options_words two = {0};
    promise_lock_options_words three = {0};
    promise_semaphore_options_words four = {0};
    promise_size_first five = {0};
    promise_codes_negative six = {0};
    pawl_lock_options options;
    pawl_client *client = NULL;
    pawl_lock *lock = NULL;
    pawl_error err;
    int code;

    options.size = sizeof options;
    options.kind = PAWL_MUTEX;
    options.owner = PAWL_OWNER_HANDLE;
    options.lease_ms = options.max_hold_ms = options.at_least_ms = 0;
    options.on_lost = lost;
    options.arg = NULL;
    code = pawl_open(&client, "local:", NULL, &err);
    if (code == 0)
        code = pawl_lock_new(&lock, client, "name", &options, &err);
    if (code == 0)
        code = pawl_lock_acquire(lock, PAWL_FOREVER, &err);
    switch (code) {
    case PAWL_OK:
    case PAWL_ETIMEDOUT:
        break;
    default:
        code = one[0] + two[0] + three[0] + four[0] + five[0] + six[0];
    }
    return code;
}
