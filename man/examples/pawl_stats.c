/* SPDX-License-Identifier: Apache-2.0 */
#include <pawl.h>
#include <stdio.h>

int main(void)
{
    pawl_stats stats = {.size = sizeof stats};
    pawl_client *client;
    pawl_error err;

    if (pawl_open(&client, "memory:", NULL, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    if (!pawl_client_stats(client, &stats))
        printf("%llu acquired, %llu lost\n", (unsigned long long)stats.acquired,
               (unsigned long long)stats.lost);
    return pawl_close(client) != 0;
}
