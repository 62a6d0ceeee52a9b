/* SPDX-License-Identifier: Apache-2.0 */
#include <pawl.h>
#include <stdio.h>

static void lost(void *arg, pawl_lock *lock, int code)
{
    (void)code;
    *(int *)arg = 1; /* stop writing */
    fprintf(stderr, "%s: %s\n", pawl_lock_name(lock), pawl_lost_text(pawl_lock_lost_reason(lock)));
}

int main(void)
{
    int stop = 0;
    pawl_lock_options options = {.size = sizeof options, .on_lost = lost, .arg = &stop};
    pawl_client *client;
    pawl_lock *lock;
    pawl_error err;
    int code;

    if (pawl_open(&client, "memory:", NULL, &err) ||
        pawl_lock_new(&lock, client, "stock:42", &options, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    code = pawl_lock_acquire(lock, 5000, &err); /* wait at most 5 s */
    if (code == PAWL_ETIMEDOUT)
        puts("somebody else has it");
    else if (code)
        fprintf(stderr, "%s\n", err.text);
    if (!code) {
        if (!stop && pawl_lock_valid_ms(lock) > 1000) /* time for one write */
            printf("write with token %llu\n", (unsigned long long)pawl_lock_token(lock));
        if (pawl_lock_release(lock, &err)) /* PAWL_ELOST: it was lost before */
            fprintf(stderr, "%s\n", err.text);
    }
    pawl_lock_free(lock);
    return pawl_close(client) != 0;
}
