/* SPDX-License-Identifier: Apache-2.0 */
#include <pawl.h>
#include <stdio.h>

static int print_row(void *arg, const pawl_info *info)
{
    (void)arg;
    if (info->role == PAWL_ROLE_SUMMARY)
        printf("%s: %llu hold it, %llu wait\n", info->name, (unsigned long long)info->holders,
               (unsigned long long)info->waiters);
    else
        printf("  pid %lld on %s\n", (long long)info->pid, info->host);
    return 0; /* go on */
}

int main(void)
{
    pawl_client *client;
    pawl_lock *lock;
    pawl_error err;

    if (pawl_open(&client, "memory:", NULL, &err) ||
        pawl_lock_new(&lock, client, "stock:42", NULL, &err) ||
        pawl_lock_acquire(lock, 0, &err) ||
        pawl_inspect(client, "stock:42", print_row, NULL, &err) ||
        pawl_list(client, "stock:*", print_row, NULL, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    pawl_lock_free(lock);
    return pawl_close(client) != 0;
}
