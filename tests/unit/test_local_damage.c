/* SPDX-License-Identifier: Apache-2.0
 *
 * test_local_damage.c - the engine local with damaged tables: flipped bits, overwritten bytes,
 * truncated files. Every call ends, with any code; nothing crashes.
 *
 * Clients have the table open while it is damaged, and another client opens the table afterwards. A
 * mapped file is truncated only while no client has the file open: only its owner could do that
 * (local.h). $DAMAGE_ROUNDS is the number of tables that are damaged.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "local/local.h"
#include "local_client.h"

enum { BLOCKS = 8, KEPT = sizeof(local_map) + BLOCKS * 1024 };

static char good[KEPT], bad[KEPT];
static int table = -1;
static bool group;
static uint64_t seed;

static uint64_t rnd(uint64_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % n;
}

static int no_row(void *arg, const pawl_info *row)
{
    (void)arg;
    return row->name == NULL || row->program == NULL;
}

/* Most positions are those that the calls below use; the others are anywhere in the table. */
static size_t place(const uint32_t buckets[3])
{
    switch (rnd(9)) {
    case 0:
        return rnd(640);
    case 1:
        return LOCAL_AT_BUCKET(buckets[rnd(3)]) + rnd(8);
    case 2:
        return LOCAL_AT_SLOT(rnd(4), gen) + rnd(sizeof(local_slot));
    case 3:
        return LOCAL_AT_OWNER(rnd(BLOCKS)) + rnd(8);
    case 4:
        return LOCAL_AT_OWNER(rnd(LOCAL_BLOCKS)) + rnd(8);
    case 5:
        return LOCAL_AT_OWNER(rnd(LOCAL_BLOCKS)) + 2; /* with the bit LOCAL_READY */
    case 6:
        return rnd(KEPT);
    default:
        return sizeof(local_map) + rnd(BLOCKS * 1024);
    }
}

static void damage(const uint32_t buckets[3])
{
    memcpy(bad, good, sizeof bad);
    for (uint64_t i = 0, n = 1 + rnd(6); i < n; i++) {
        size_t at = place(buckets);

        if (rnd(3))
            bad[at] = (char)(bad[at] ^ 1 << rnd(8));
        else
            bad[at] = (char)rnd(256);
    }
    CHECK(pwrite(table, bad, sizeof bad, 0) == (ssize_t)sizeof bad);
    if (group && rnd(4) == 0)
        CHECK(!ftruncate(table, (off_t)rnd(KEPT)));
}

/* A mapped table that has grown is not cut: its owner does not do that. */
static void mend(off_t size)
{
    struct stat st;

    CHECK(!fstat(table, &st));
    CHECK((!group && st.st_size > size) || !ftruncate(table, size));
    CHECK(pwrite(table, good, sizeof good, 0) == (ssize_t)sizeof good);
}

/* One call of each kind; the codes don't matter here. */
static void use(struct client *c, const char *name)
{
    pawl_op op = op_acquire(c, name, (int)rnd(2), rnd(2)), look = op_of(c, PAWL_OP_LIST, NULL);
    pawl_renewal item = {.name = name, .owner = op.owner, .lease_ms = 30000};
    pawl_op renew = op_of(c, PAWL_OP_RENEW, name);

    client_start(c, &op);
    client_run(c);
    renew.batch = &item;
    renew.batch_len = 1;
    client_start(c, &renew);
    (void)client_finish(c, &op, 0);
    (void)client_release(c, &op);
    look.row = no_row;
    look.kind = rnd(4) ? PAWL_OP_INSPECT : PAWL_OP_LIST;
    look.name = look.kind == PAWL_OP_LIST ? NULL : name;
    client_start(c, &look);
    client_simple(c, rnd(2) ? PAWL_OP_BREAK : PAWL_OP_LATCH_DOWN, name);
}

static void newcomer(void)
{
    struct client c;
    pawl_error err;

    if (!client_open_url(&c, client_folder(), NULL, 0, &err))
        use(&c, "b");
    client_close(&c);
}

static void open_table(void)
{
    char path[192];
    const char *mode = getenv("LOCAL_MODE");

    group = mode && strcmp(mode, "700") != 0;
    snprintf(path, sizeof path, "%s/.pawl/table", client_folder());
    table = open(path, O_RDWR);
    CHECK(table >= 0 && pread(table, good, sizeof good, 0) == (ssize_t)sizeof good);
}

static int rounds(void)
{
    const char *wanted = getenv("DAMAGE_ROUNDS");

    seed = random_number();
    check_note("seed %llu", (unsigned long long)seed);
    return wanted ? atoi(wanted) : 300;
}

CASE("whatever is written to the table, every call ends")
{
    static const char *const names[3] = {"a", "b", "c"};
    int n = rounds();
    uint32_t buckets[3];
    struct client holder, other;
    pawl_op one, two, three;
    struct stat st;

    CHECK(!client_open(&holder) && !client_open(&other));
    one = op_acquire(&holder, "a", PAWL_MODE_EXCLUSIVE, false);
    two = op_acquire(&other, "a", PAWL_MODE_EXCLUSIVE, true);
    three = op_acquire(&other, "b", PAWL_MODE_SHARED, false);
    client_start(&holder, &one);
    client_start(&other, &two);
    client_start(&other, &three);
    for (int i = 0; i < 3; i++)
        buckets[i] = shelf_bucket(&((local *)holder.self)->engine, names[i]);
    open_table();
    CHECK(!fstat(table, &st) && st.st_size >= KEPT);
    for (int i = 0; i < n; i++) {
        damage(buckets);
        use(&holder, names[rnd(3)]);
        client_run(&other);
        use(&other, names[rnd(3)]);
        newcomer();
        mend(st.st_size);
    }
    if (!two.arg)
        (void)client_finish(&other, &two, 0);
    client_close(&holder);
    client_close(&other);
}

/* The bits of the words of all blocks are set: also of those whose bytes the file does not have. */
static void set_all(uint64_t bits)
{
    local_map *map = (local_map *)(void *)bad;

    memcpy(bad, good, sizeof bad);
    for (size_t i = 0; i < LOCAL_BLOCKS; i++)
        map->owners[i] |= bits;
    CHECK(pwrite(table, bad, sizeof bad, 0) == (ssize_t)sizeof bad);
}

/* Hold many names, and many owners of one name, so that blocks of all classes are written. */
static void use_many(struct client *c)
{
    static char names[400][16];
    static pawl_op one[400], many[400];

    for (int i = 0; i < 400; i++) {
        snprintf(names[i], sizeof names[i], "name-%d", i);
        one[i] = op_acquire(c, names[i], PAWL_MODE_EXCLUSIVE, false);
        many[i] = op_acquire(c, "many", PAWL_MODE_SHARED, false);
        client_start(c, &one[i]);
        client_start(c, &many[i]);
    }
    for (int i = 0; i < 400; i++) {
        (void)client_release(c, &one[i]);
        (void)client_release(c, &many[i]);
    }
}

CASE("a block that was never allocated is not used, whatever its word says")
{
    struct client before, after;
    struct stat st;
    pawl_error err;

    CHECK(!client_open(&before));
    use(&before, "a");
    open_table();
    CHECK(!fstat(table, &st));
    for (uint64_t bits = 0; bits < 4; bits++) {
        set_all(LOCAL_READY | bits << 20); /* some of the count's bits, too */
        use_many(&before);
        if (!client_open_url(&after, client_folder(), NULL, 0, &err))
            use_many(&after);
        client_close(&after);
        mend(st.st_size);
    }
    client_close(&before);
}

CASE("a bucket that points to a block that was never allocated is an error")
{
    struct client before, after;
    local_map *map = (local_map *)(void *)bad;
    pawl_error err;

    CHECK(!client_open(&before));
    open_table();
    set_all(LOCAL_READY);
    for (size_t i = 0; i < LOCAL_BUCKETS; i++)
        map->buckets[i] = (i * 7919 + 1000) % LOCAL_BLOCKS + 1;
    CHECK(pwrite(table, bad, sizeof bad, 0) == (ssize_t)sizeof bad);
    use_many(&before);
    if (!client_open_url(&after, client_folder(), NULL, 0, &err))
        use_many(&after);
    client_close(&after);
    client_close(&before);
}

CASE("a table that was cut is an error, wherever it was cut")
{
    struct client c;
    pawl_op op;
    int n = rounds() / 3;

    CHECK(!client_open(&c));
    op = op_acquire(&c, "b", PAWL_MODE_EXCLUSIVE, false);
    client_start(&c, &op);
    CHECK(op.code == 0);
    open_table();
    client_close(&c);
    for (int i = 0; i < n; i++) {
        CHECK(!ftruncate(table, (off_t)rnd(i % 2 ? KEPT : sizeof(local_map))));
        newcomer();
        mend(KEPT);
    }
}

int main(int argc, char **argv)
{
    return client_main(argc, argv);
}
