/* SPDX-License-Identifier: Apache-2.0 */
#include <pawl.h>
#include <stdio.h>

int main(void)
{
    pawl_client *client;
    pawl_latch *latch;
    pawl_error err;

    if (pawl_open(&client, "memory:", NULL, &err) ||
        pawl_latch_new(&latch, client, "ready", &err) ||
        pawl_latch_set(latch, 2, &err) ||        /* two parts must come up */
        pawl_latch_count_down(latch, &err) ||    /* each of them says so */
        pawl_latch_count_down(latch, &err) ||
        pawl_latch_wait(latch, 60000, &err)) {   /* go on when both have */
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    puts("both are ready");
    pawl_latch_free(latch);
    return pawl_close(client) != 0;
}
