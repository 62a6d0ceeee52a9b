/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_shelf.c - any bytes as a shelf of local:, which another user may have written.
 *
 * Rules: every rule can be applied to a shelf that lockstate_check accepts, for a name on the shelf
 * and for another name, and the shelf is valid afterwards. Nothing is read or written outside of
 * the shelf, and no number overflows (the sanitizers check this).
 */
#include "fuzz.h"
#include "shelf/lockstate.h"

enum { ROOM = 1 << 17, OPS = 12 };

static uint64_t fence(void *arg, uint32_t n)
{
    uint64_t *next = arg;

    *next += n;
    return *next - n;
}

static bool dead(void *arg, const lockstate_entry *e)
{
    (void)arg;
    return e->peer % 3 == 1;
}

static void tell(void *arg, const lockstate_entry *e, enum lockstate_why why)
{
    (void)arg;
    DEMAND(e->mode <= PAWL_MODE_LATCH && why <= LOCKSTATE_EVICTED);
}

static void apply(lockstate_edit *edit, int op, const lockstate_entry *who)
{
    lockstate_entry want = *who;
    lockstate_ask ask = {.queue = true, .with_seq = who->seq ^ 1, .capacity = 3};
    lockstate_lock *lock;

    want.mode = (uint8_t)(op % 4);
    switch (op) {
    case 0: case 1: case 2: case 3:
        (void)lockstate_acquire(edit, &want, &ask);
        break;
    case 4:
        (void)lockstate_release(edit, who->client, who->seq, 0, 0);
        break;
    case 5:
        (void)lockstate_release(edit, who->client, who->seq, 1, 50);
        break;
    case 6:
        (void)lockstate_cancel(edit, who->client, who->seq);
        break;
    case 7:
        (void)lockstate_renew(edit, who->client, who->seq, 30000);
        break;
    case 8:
        lockstate_expire(edit, who->client, who->seq);
        lockstate_retell(edit, who->client, who->seq);
        break;
    case 9:
        (void)lockstate_break(edit);
        break;
    case 10:
        (void)lockstate_latch_down(edit, &want);
        (void)lockstate_latch_set(edit, &want, 2);
        break;
    default:
        lockstate_sweep(edit);
        lock = lockstate_find(edit->shelf, edit->name, edit->name_len);
        if (lock) {
            (void)lockstate_available(lock);
            lockstate_prune(edit, lock);
        }
    }
}

static void use(const uint8_t *data, size_t size, const char *name, size_t name_len,
                const lockstate_entry *who)
{
    static _Alignas(8) unsigned char bytes[ROOM];
    uint64_t next = 1000;

    for (int op = 0; op < OPS; op++) {
        lockstate_shelf shelf = {.bytes = bytes, .used = size, .cap = ROOM};
        lockstate_edit edit = {.shelf = &shelf, .name = name, .name_len = name_len,
                               .now = INT64_C(1000000000000), .fence = fence, .dead = dead,
                               .tell = tell, .arg = &next};

        memcpy(bytes, data, size);
        apply(&edit, op, who);
        DEMAND(lockstate_check(bytes, shelf.used));
        apply(&edit, (op * 5 + 3) % OPS, who);
        DEMAND(lockstate_check(bytes, shelf.used));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static _Alignas(8) unsigned char bytes[ROOM];
    lockstate_entry other = {.client = 7, .seq = 9, .lease_ms = 1000, .permits = 1, .ntokens = 1};
    lockstate_shelf shelf = {.bytes = bytes, .used = size, .cap = ROOM};
    lockstate_lock *lock;
    char name[PAWL_NAME_MAX + 1];

    if (size > ROOM / 2)
        return 0;
    memcpy(bytes, data, size);
    if (!lockstate_check(bytes, size))
        return 0;
    use(data, size, "not there", 9, &other);
    for (lock = lockstate_first(&shelf); lock; lock = lockstate_next(&shelf, lock)) {
        lockstate_entry who = lock->holders + lock->waiters ? *lockstate_entries(lock) : other;

        memcpy(name, lockstate_name(lock), (size_t)lock->name_len + 1);
        use(data, size, name, lock->name_len, &who);
        use(data, size, name, lock->name_len, &other);
    }
    return 0;
}
