/* SPDX-License-Identifier: Apache-2.0 */
#include <pawl.h>
#include <stdio.h>

int main(void)
{
    pawl_client *client;
    pawl_error err;

    if (pawl_open(&client, "local", NULL, &err)) /* the colon is missing */
        printf("%s: %s (%s)\n", pawl_errname(err.code), err.text, pawl_strerror(err.code));
    else
        pawl_close(client);
    return 0;
}
