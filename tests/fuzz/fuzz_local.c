/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_local.c - the whole engine local, with a table to which another process writes.
 *
 * The first byte says whether the table is mapped (even) or is a group's table, which is read and
 * written (odd). Steps of five bytes follow: an action, a position (two bytes), and two more bytes.
 *
 *     0-3  a word of the table gets these bytes (kind 0: of the head, buckets and slots that are in
 *          use; 1: owners; 2, 3: the blocks), or one bit of the word flips. If the action has the
 *          bit WHOLE: a word anywhere in the table
 *     4    an op of the first client; 5: of the second
 *     6    100 ms pass for both        7  the second client leaves, or comes
 *
 * When the script begins, one client holds a name and another one waits for the name. The rules are
 * in world.h. The table is restored before each script; it is in a separate folder in /dev/shm.
 */
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fork.h"
#include "local/local.h"
#include "registry.h"
#include "world.h"

enum { BLOCKS = 8, KEPT = sizeof(local_map) + BLOCKS * 1024, STEP = 5, WHOLE = 32 };

static char root[64], folder[2][96];
static char good[2][KEPT];
static off_t sizes[2];
static uint32_t bucket;

/* A search for a free block may sleep 500 times. */
int __wrap_nanosleep(const struct timespec *wanted, struct timespec *left);

int __wrap_nanosleep(const struct timespec *wanted, struct timespec *left)
{
    (void)wanted;
    (void)left;
    return 0;
}

/* Nothing forks here. */
void pawl__fork_guard_add(int fd)
{
    (void)fd;
}

void pawl__fork_guard_remove(int fd)
{
    (void)fd;
}

/* ---- the folders ----------------------------------------------------------------------------- */

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *at)
{
    (void)st;
    (void)flag;
    (void)at;
    return remove(path);
}

static void remove_root(void)
{
    nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void turned(world *w)
{
    uv_run(&w->loop, UV_RUN_NOWAIT);
}

static void open_in(world *w, int shared)
{
    char url[128];

    snprintf(url, sizeof url, "local:%s", folder[shared]);
    world_open(w, &pawl_engine_local, url);
}

static int open_table(int shared)
{
    char path[128];
    int fd;

    snprintf(path, sizeof path, "%s/.pawl/table", folder[shared]);
    fd = open(path, O_RDWR);
    DEMAND(fd >= 0);
    return fd;
}

/* Make an empty table, as its first client leaves the table. */
static void make(int shared)
{
    static world w;
    struct stat st;
    int fd;

    snprintf(folder[shared], sizeof folder[shared], "%s/%d", root, shared);
    DEMAND(!mkdir(folder[shared], 0700) && !chmod(folder[shared], shared ? 02770 : 0700));
    open_in(&w, shared);
    DEMAND(!w.closing);
    bucket = shelf_bucket(&((local *)w.self)->engine, "a");
    world_submit(&w, 'a');
    world_submit(&w, 'r');
    world_close(&w);
    fd = open_table(shared);
    DEMAND(!fstat(fd, &st) && st.st_size >= KEPT);
    sizes[shared] = st.st_size;
    DEMAND(pread(fd, good[shared], KEPT, 0) == KEPT);
    close(fd);
}

static void make_all(void)
{
    snprintf(root, sizeof root, "%s/pawl-fuzz-XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    DEMAND(mkdtemp(root));
    atexit(remove_root);
    make(0);
    make(1);
}

/* ---- damage ---------------------------------------------------------------------------------- */

static size_t place(int kind, unsigned where)
{
    switch (kind) {
    case 0:
        if (where % 4 == 0)
            return where / 4 % 640;
        if (where % 4 == 1)
            return LOCAL_AT_BUCKET(bucket) + where / 4 % 8;
        return LOCAL_AT_SLOT(where / 4 % 4, gen) + where / 16 % sizeof(local_slot);
    case 1:
        return LOCAL_AT_OWNER(where % (BLOCKS * 8) / 8) + where % 8;
    default:
        return sizeof(local_map) + where % (BLOCKS * 1024);
    }
}

static void damage(int fd, const uint8_t *step)
{
    unsigned where = step[1] | (unsigned)step[2] << 8;
    size_t word = where | (size_t)(step[0] >> 6) << 16;
    size_t at = step[0] & WHOLE ? word * 8 % (KEPT - 8) + step[4] % 8 : place(step[0] & 3, where);
    uint8_t bytes[2] = {step[3], step[4]};

    if (step[0] & 8) { /* a bit */
        DEMAND(pread(fd, bytes, 1, (off_t)at) >= 0);
        bytes[0] = (uint8_t)(bytes[0] ^ 1 << step[3] % 8);
    }
    DEMAND(pwrite(fd, bytes, step[0] & 16 ? 2 : 1, (off_t)at) > 0);
}

/* ---- the script ------------------------------------------------------------------------------ */

static void use(world *w, const uint8_t *step)
{
    static const char letters[] = "aAspornbdDiLcC";

    if (w->closing)
        return;
    if (step[1] & 64)
        world_cancel(w, 1 + step[2] % (WORLD_OPS - 1));
    else
        world_submit(w, letters[step[1] % (sizeof letters - 1)]);
}

static void take(world *one, world *two, int fd, int shared, const uint8_t *step)
{
    switch (step[0] & 7) {
    case 4:
        use(one, step);
        break;
    case 5:
        use(two, step);
        break;
    case 6:
        for (int i = 0; i < 2; i++)
            if (!(i ? two : one)->closing)
                world_pass(i ? two : one, 100);
        break;
    case 7:
        world_close(two);
        open_in(two, shared);
        break;
    default:
        damage(fd, step);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static world one, two;
    int shared = size ? data[0] & 1 : 0, fd;

    if (!root[0]) {
        world_turned = turned;
        make_all();
    }
    if (size < 1 + STEP)
        return 0;
    fd = open_table(shared);
    DEMAND(!ftruncate(fd, sizes[shared]) && pwrite(fd, good[shared], KEPT, 0) == KEPT);
    open_in(&one, shared);
    open_in(&two, shared);
    DEMAND(!one.closing && !two.closing);
    world_submit(&one, 'a');
    world_submit(&two, 'a');
    for (size_t at = 1; at + STEP <= size && at < 1 + 40 * STEP; at += STEP)
        take(&one, &two, fd, shared, data + at);
    world_close(&two);
    world_close(&one);
    close(fd);
    return 0;
}
