/* SPDX-License-Identifier: Apache-2.0 */
#include <pawl-observe.h>
#include <stdio.h>

static int print_engine(void *arg, const pawl_engine_info *engine)
{
    (void)arg;
    printf("%s: %s\n", engine->scheme, *engine->trouble ? engine->trouble : "can be used");
    return 0; /* go on */
}

int main(void)
{
    printf("pawl %s with %s\n", pawl_version(), pawl_libraries());
    return pawl_engines(print_engine, NULL) != 0;
}
