/* SPDX-License-Identifier: Apache-2.0
 *
 * replay.c - runs a fuzz target on its corpus without a fuzzer, so that every build checks inputs
 * that once failed: each file of a folder as it is; a short file also cut off at each place, and
 * with each byte replaced by some others. If a rule is violated, the target aborts; the name of the
 * file is then the last line.
 *
 *     replay_NAME FOLDER
 */
#include <dirent.h>
#include <string.h>

#include "fuzz.h"

#ifndef VARIED
#define VARIED 128 /* bytes of the longest file that is varied */
#endif

enum { ROOM = 1 << 16 };

/* The data are copied into a block of exactly their length, so that a read after the end is
 * detected. */
static void once(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);

    DEMAND(copy);
    memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static void vary(uint8_t *data, size_t size)
{
    static const uint8_t others[] = "\0\r\n-+$*:%0195?=&|>_\x80\xff";

    for (size_t i = 0; i < size; i++) {
        uint8_t byte = data[i];

        once(data, i);
        for (size_t j = 0; j < sizeof others - 1; j++) {
            data[i] = others[j];
            once(data, size);
        }
        data[i] = byte;
    }
}

static void replay(const char *folder, const char *name)
{
    static uint8_t data[ROOM];
    char path[4096];
    size_t size;
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "rb");
    DEMAND(file);
    size = fread(data, 1, sizeof data, file);
    fclose(file);
    printf("# %s\n", name);
    fflush(stdout);
    once(data, size);
    if (size <= VARIED)
        vary(data, size);
}

static int visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

int main(int argc, char **argv)
{
    struct dirent **names;
    int n = argc == 2 ? scandir(argv[1], &names, visible, alphasort) : -1;

    if (n <= 0) {
        fprintf(stderr, "usage: %s FOLDER (with files in it)\n", argv[0]);
        return 64;
    }
    printf("1..%d\n", n);
    for (int i = 0; i < n; i++) {
        replay(argv[1], names[i]->d_name);
        printf("ok %d - %s\n", i + 1, names[i]->d_name);
        free(names[i]);
    }
    free(names);
    return 0;
}
