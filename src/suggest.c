/* SPDX-License-Identifier: Apache-2.0
 *
 * suggest.c - see suggest.h. The distance is that of Damerau and Levenshtein, in which swapping two
 * neighbours is one mistake. Words longer than LONGEST are never similar.
 */
#include "suggest.h"

#include <string.h>

#define LONGEST 31

static size_t least(size_t a, size_t b, size_t c)
{
    size_t ab = a < b ? a : b;

    return ab < c ? ab : c;
}

static size_t distance(const char *a, size_t m, const char *b, size_t n)
{
    size_t d[LONGEST + 1][LONGEST + 1];

    for (size_t i = 0; i <= m; i++)
        d[i][0] = i;
    for (size_t j = 0; j <= n; j++)
        d[0][j] = j;
    for (size_t i = 1; i <= m; i++)
        for (size_t j = 1; j <= n; j++) {
            d[i][j] = least(d[i - 1][j] + 1, d[i][j - 1] + 1,
                            d[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                d[i - 2][j - 2] + 1 < d[i][j])
                d[i][j] = d[i - 2][j - 2] + 1;
        }
    return d[m][n];
}

const char *pawl__suggest(const char *word, const char *const *list, size_t n)
{
    size_t length = strlen(word), best = 3;
    const char *found = NULL;

    if (length < 2 || length > LONGEST)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        size_t other = list[i] ? strlen(list[i]) : 0, far;

        if (!other || other > LONGEST)
            continue;
        far = distance(word, length, list[i], other);
        if (far < best && far * 3 <= (length > other ? length : other)) {
            best = far;
            found = list[i];
        }
    }
    return found;
}
