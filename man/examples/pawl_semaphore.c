/* SPDX-License-Identifier: Apache-2.0 */
#include <pawl.h>
#include <stdio.h>

int main(void)
{
    pawl_semaphore_options options = {.size = sizeof options, .permits = 4};
    pawl_client *client;
    pawl_semaphore *sem;
    pawl_error err;
    int64_t left = 0;

    if (pawl_open(&client, "memory:", NULL, &err) ||
        pawl_semaphore_new(&sem, client, "converters", &options, &err) ||
        pawl_semaphore_acquire(sem, 1, PAWL_FOREVER, &err) ||
        pawl_semaphore_available(sem, &left, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    printf("one of four runs here, %lld left\n", (long long)left);
    if (pawl_semaphore_release(sem, 1, &err))
        fprintf(stderr, "%s\n", err.text);
    pawl_semaphore_free(sem);
    return pawl_close(client) != 0;
}
