/* SPDX-License-Identifier: Apache-2.0 */
#include <pawl-observe.h>
#include <stdio.h>

static int print_finding(void *arg, const pawl_finding *finding)
{
    int *defects = arg;

    if (finding->level >= PAWL_FINDING_WARNING) {
        printf("%s (%s): %s. %s\n", finding->id, finding->where, finding->what, finding->remedy);
        ++*defects;
    }
    return 0; /* go on */
}

int main(void)
{
    int defects = 0, code;
    pawl_client *client;
    pawl_error err;

    if (pawl_open(&client, "local:", NULL, &err)) { /* or "redis://cache1" */
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    code = pawl_examine(client, print_finding, &defects, &err);
    if (code)
        fprintf(stderr, "%s\n", err.text);
    else
        printf("%d findings\n", defects);
    return pawl_close(client) || code;
}
