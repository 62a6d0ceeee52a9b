/* SPDX-License-Identifier: Apache-2.0
 *
 * identity.c - the identity of a quorum: the identities of the nodes, in an order that does not
 * depend on the order in the URL.
 */
#include <stdlib.h>

#include "quorum.h"

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Read and sort the identities of the nodes; false: a node has none, or no memory. */
static bool read_all(const quorum *q, char **texts)
{
    for (size_t i = 0; i < q->n; i++) {
        int length = pawl_instance_identity(&q->nodes[i].inner, NULL, 0);

        texts[i] = length < 0 ? NULL : malloc((size_t)length + 1);
        if (!texts[i] ||
            pawl_instance_identity(&q->nodes[i].inner, texts[i], (size_t)length + 1) != length)
            return false;
    }
    qsort(texts, q->n, sizeof texts[0], by_text);
    return true;
}

int quorum_identity(void *self, char *ret, size_t size)
{
    const quorum *q = self;
    char **texts = calloc(q->n + 1, sizeof *texts);
    bool all = texts && read_all(q, texts);
    int used = all ? snprintf(ret, size, "quorum") : -1;

    for (size_t i = 0; all && i < q->n; i++) {
        bool room = (size_t)used < size;

        used += snprintf(room ? ret + used : NULL, room ? size - (size_t)used : 0, " (%s)",
                         texts[i]);
    }
    for (size_t i = 0; texts && i < q->n; i++)
        free(texts[i]);
    free(texts);
    return used;
}
