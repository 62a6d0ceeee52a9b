/* SPDX-License-Identifier: Apache-2.0
 *
 * names_zk.c - names as nodes of ZooKeeper; see fuzz_names.c.
 */
#include "names.h"

#include "zk/zk.h"

static void check_node(char text[3 * PAWL_NAME_MAX + 1], const char *name, bool at_root)
{
    char again[PAWL_NAME_MAX + 1];

    zk_encode(text, name, at_root);
    DEMAND(text[0] && strlen(text) <= 3 * PAWL_NAME_MAX && !strchr(text, '/'));
    DEMAND(strcmp(text, ".") && strcmp(text, "..") && (!at_root || strcmp(text, "zookeeper")));
    DEMAND(zk_decode(again, text, strlen(text), at_root) && !strcmp(again, name));
}

void names_zk(const char *a, const char *b)
{
    char x[3 * PAWL_NAME_MAX + 1], y[3 * PAWL_NAME_MAX + 1];

    for (int at_root = 0; at_root < 2; at_root++) {
        check_node(x, a, at_root);
        check_node(y, b, at_root);
        DEMAND(strcmp(x, y));
    }
}
