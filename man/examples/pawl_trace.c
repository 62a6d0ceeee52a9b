/* SPDX-License-Identifier: Apache-2.0 */
#include <pawl-observe.h>
#include <stdio.h>

/* Make a span of each wait and each hold here. */
static void print_event(void *arg, const pawl_trace *event)
{
    const char *id = arg;

    if (event->event == PAWL_TRACE_WAIT_END)
        printf("%s %llu: waited %lld us for '%s': %s\n", id, (unsigned long long)event->id,
               (long long)event->lasted_ns / 1000, event->name, pawl_strerror((int)event->code));
    if (event->event == PAWL_TRACE_HOLD_END)
        printf("%s %llu: held '%s' for %lld us\n", id, (unsigned long long)event->id, event->name,
               (long long)event->lasted_ns / 1000);
}

int main(void)
{
    pawl_client_options options = {.size = sizeof options,
                                   .trace = print_event,
                                   .trace_arg = "shop"};
    pawl_client *client;
    pawl_lock *lock;
    pawl_error err;

    if (pawl_open(&client, "memory:", &options, &err) ||
        pawl_lock_new(&lock, client, "stock:42", NULL, &err) ||
        pawl_lock_acquire(lock, 0, &err) ||
        pawl_lock_release(lock, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    pawl_lock_free(lock);
    return pawl_close(client) != 0;
}
