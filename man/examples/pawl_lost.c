/* SPDX-License-Identifier: Apache-2.0 */
#include <pawl-observe.h>
#include <stdio.h>

int main(void)
{
    pawl_client *client;
    pawl_lock *lock;
    pawl_error err;
    char cause[256];

    if (pawl_open(&client, "memory:", NULL, &err) ||
        pawl_lock_new(&lock, client, "stock:42", NULL, &err) ||
        pawl_lock_acquire(lock, 0, &err) ||
        pawl_lock_break(lock, &err)) { /* as an operator does with `pawl break` */
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    if (pawl_lock_valid_ms(lock) == 0)
        printf("stop: %s\n", pawl_lock_lost_cause(lock, cause, sizeof cause));
    if (pawl_lock_release(lock, &err) == PAWL_ELOST) /* acknowledges the loss */
        puts(err.text);
    pawl_lock_free(lock);
    return pawl_close(client) != 0;
}
