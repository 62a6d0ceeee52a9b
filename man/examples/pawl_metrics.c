/* SPDX-License-Identifier: Apache-2.0 */
#include <pawl-observe.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    pawl_client_options options = {.size = sizeof options, .label = "shop"};
    pawl_client *client;
    pawl_lock *lock;
    pawl_error err;
    char *text;

    if (pawl_open(&client, "memory:", &options, &err) ||
        pawl_lock_new(&lock, client, "stock:42", NULL, &err) ||
        pawl_lock_acquire(lock, 0, &err) ||
        pawl_metrics(&client, 1, PAWL_METRICS_PROMETHEUS, &text, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    fputs(text, stdout); /* pawl_held{client="shop",lock="stock:*"} 1 ... */
    free(text);
    pawl_lock_free(lock);
    return pawl_close(client) != 0;
}
