/* SPDX-License-Identifier: Apache-2.0
 *
 * checks.c - the checks of pawl doctor that work with every engine: whether each kind of lock
 * works, how long a question takes against the lease, and the clocks.
 *
 * The names begin with "pawl-doctor-". Two runs of pawl doctor at the same time wait for each other
 * for a moment. A lock that a failed check leaves behind ends with the client or with its lease.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "doctor.h"

#define TRIPS 20
#define TRIPS_MS 5000   /* all round trips together, at most */
#define AGAIN_MS 1000   /* between the two examinations of the service */
#define OFFSET_MS 1000  /* a clock that differs by more is wrong */
#define STEP_MS 100
#define WAIT_MS 2000    /* for another pawl doctor */

static int64_t clock_us(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* ---- use ----------------------------------------------------------------------------------- */

typedef struct use {
    report *report;
    const tool *tool;
    pawl_client *client, *other;
    char name[64];
} use;

/* Errors that are not findings: the engine lacks the feature, another pawl doctor uses the same
 * names at the moment, or the missing right was reported already. */
static bool excused(const use *u, int code)
{
    return !code || code == PAWL_ENOTSUP || code == PAWL_EBUSY || code == PAWL_ETIMEDOUT ||
           code == PAWL_ESTATE || code == PAWL_ENOTHELD || code == PAWL_ELOST ||
           (code == PAWL_EAUTH && report_has(u->report, "rights"));
}

static void worked(use *u, const char *what, const pawl_error *err)
{
    char text[400];

    if (excused(u, err->code))
        return;
    snprintf(text, sizeof text, "%s: %s", what,
             err->text[0] ? err->text : pawl_strerror(err->code));
    if (err->code == PAWL_EAUTH)
        report_found(u->report, PAWL_FINDING_DANGER, "rights", text,
                     "The user lacks a right, so this call fails for every program.",
                     "Grant the right; docs/security.md has the statements for each service.");
    else
        report_found(u->report, PAWL_FINDING_DANGER, "use", text,
                     "Programs get the same error.",
                     "See the error's own words, and the other findings.");
}

static int skip_row(void *arg, const pawl_info *info)
{
    (void)arg;
    (void)info;
    return 0;
}

/* Let a second client try the same lock and fail, so that queueing and giving up are used as well.
 * If the service does not answer within a short wait, try again with a longer one. */
static int contend(use *u, pawl_error *err)
{
    static const int64_t waits[] = {100, 1000, 5000};
    pawl_lock *lock;
    int code = pawl_inspect(u->other, u->name, skip_row, NULL, err); /* connects */

    if (!code)
        code = pawl_lock_new(&lock, u->other, u->name, NULL, err);
    if (code)
        return code;
    for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
        code = pawl_lock_acquire(lock, waits[i], err);
        if (code != PAWL_ECONN && code != PAWL_EUNKNOWN)
            break;
    }
    if (!code)
        code = pawl_lock_release(lock, err);
    pawl_lock_free(lock);
    return code == PAWL_ETIMEDOUT || code == PAWL_EBUSY ? 0 : code;
}

static int use_kind(use *u, uint64_t kind, pawl_error *err)
{
    pawl_lock_options options = {.size = sizeof options, .kind = kind};
    pawl_lock *lock;
    int code = pawl_lock_new(&lock, u->client, u->name, &options, err);

    if (code)
        return code;
    code = pawl_lock_acquire(lock, WAIT_MS, err);
    if (!code)
        code = pawl_lock_renew(lock, 0, err);
    if (!code)
        code = pawl_inspect(u->client, u->name, skip_row, NULL, err);
    if (!code && kind == PAWL_MUTEX)
        code = contend(u, err);
    if (!code)
        code = pawl_lock_release(lock, err);
    pawl_lock_free(lock);
    return code;
}

static int use_break(use *u, pawl_error *err)
{
    pawl_lock *lock;
    int code = pawl_lock_new(&lock, u->client, u->name, NULL, err);

    if (code)
        return code;
    code = pawl_lock_acquire(lock, WAIT_MS, err);
    if (!code)
        code = pawl_lock_break(lock, err);
    pawl_lock_free(lock);
    return code;
}

static int use_semaphore(use *u, pawl_error *err)
{
    pawl_semaphore_options options = {.size = sizeof options, .permits = 1};
    pawl_semaphore *sem;
    int code = pawl_semaphore_new(&sem, u->client, u->name, &options, err);

    if (code)
        return code;
    code = pawl_semaphore_acquire(sem, 1, WAIT_MS, err);
    if (!code)
        code = pawl_semaphore_release(sem, 1, err);
    pawl_semaphore_free(sem);
    return code;
}

static int use_latch(use *u, pawl_error *err)
{
    pawl_latch *latch;
    int code = pawl_latch_new(&latch, u->client, u->name, err);

    if (code)
        return code;
    code = pawl_latch_set(latch, 1, err);
    if (!code)
        code = pawl_latch_count_down(latch, err);
    pawl_latch_free(latch);
    return code;
}

/* Each part has a name of its own, so that it doesn't meet the locks of another part. Every run
 * uses the same names, because services keep the token counter of a name for a while. */
static void next_name(use *u, const char *part)
{
    snprintf(u->name, sizeof u->name, "pawl-doctor-%s", part);
}

static void use_kinds(use *u)
{
    static const struct {
        uint64_t kind;
        const char *name;
    } kinds[] = {{PAWL_MUTEX, "mutex"}, {PAWL_FAIR, "fair"}, {PAWL_READ, "read"},
                 {PAWL_WRITE, "write"}};

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        pawl_error err = {0};
        char what[48];

        next_name(u, kinds[i].name);
        snprintf(what, sizeof what, "using a %s lock", kinds[i].name);
        err.code = use_kind(u, kinds[i].kind, &err);
        worked(u, what, &err);
        if (err.code == PAWL_ECONN || err.code == PAWL_EUNKNOWN)
            return; /* the other parts would take as long to fail */
    }
}

static void use_others(use *u)
{
    static int (*const parts[])(use *, pawl_error *) = {use_break, use_semaphore, use_latch};
    static const char *const names[] = {"breaking a lock", "using a semaphore", "using a latch"};
    static const char *const short_names[] = {"break", "semaphore", "latch"};
    pawl_error err = {0};

    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        err = (pawl_error){0};
        next_name(u, short_names[i]);
        err.code = parts[i](u, &err);
        worked(u, names[i], &err);
    }
    err = (pawl_error){0};
    err.code = pawl_list(u->client, "pawl-doctor-*", skip_row, NULL, &err);
    worked(u, "listing names", &err);
}

void check_use(report *r, const tool *t, pawl_client *client)
{
    use u = {.report = r, .tool = t, .client = client};
    pawl_error err = {0};

    if (client_try(t, &u.other, NULL, &err)) {
        worked(&u, "opening a second client", &err);
        return;
    }
    use_kinds(&u);
    if (!report_has(r, "use"))
        use_others(&u);
    pawl_close(u.other);
}

/* ---- round trips --------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? -1 : x > y;
}

static void judge_trips(report *r)
{
    int64_t slowest = r->slowest_us / 1000;
    char what[160], lease[32], took[32];

    if (slowest < r->lease_ms / 10)
        return;
    snprintf(what, sizeof what, "a question to the service took %s; the lease is %s",
             duration_text(took, sizeof took, slowest),
             duration_text(lease, sizeof lease, r->lease_ms));
    report_found(r, slowest < r->lease_ms / 3 ? PAWL_FINDING_WARNING : PAWL_FINDING_DANGER,
                 "round-trip", what,
                 "A lease is renewed after a third of its length. Renewals that take so long leave "
                 "little time for a second try, and locks get lost.",
                 "Use a longer lease (watchdog= in the URL, -l), or a service that is nearer or "
                 "less busy.");
}

int check_round_trips(report *r, pawl_client *client, pawl_error *err)
{
    int64_t took[TRIPS], began = clock_us(CLOCK_BOOTTIME);
    const char *name = "pawl-doctor-mutex";
    int code = pawl_inspect(client, name, skip_row, NULL, err); /* connects */


    for (r->trips = 0; !code && r->trips < TRIPS; r->trips++) {
        int64_t start = clock_us(CLOCK_BOOTTIME);

        if (r->trips && start - began > TRIPS_MS * 1000)
            break;
        code = pawl_inspect(client, name, skip_row, NULL, err);
        took[r->trips] = clock_us(CLOCK_BOOTTIME) - start;
    }
    if (code) {
        r->trips = 0;
        return code;
    }
    qsort(took, (size_t)r->trips, sizeof took[0], by_size);
    r->median_us = took[r->trips / 2];
    r->slowest_us = took[r->trips - 1];
    judge_trips(r);
    return 0;
}

/* ---- clocks -------------------------------------------------------------------------------- */

int check_service(report *r, pawl_client *client, pawl_error *err)
{
    int64_t began = clock_us(CLOCK_BOOTTIME);
    int code = pawl_examine(client, report_add, r, err);

    r->exam_us = clock_us(CLOCK_BOOTTIME) - began;
    return code == PAWL_ENOTSUP ? 0 : code;
}

/* The wall clock minus the time since boot, which changes only if somebody sets the clock. Other
 * processes may run between the two readings, so the closest of ten pairs counts. */
static int64_t own_clock_ms(void)
{
    int64_t best = INT64_MAX, offset = 0;

    for (int i = 0; i < 10 && best > 1000; i++) {
        int64_t before = clock_us(CLOCK_BOOTTIME), real = clock_us(CLOCK_REALTIME);
        int64_t took = clock_us(CLOCK_BOOTTIME) - before;

        if (took < best) {
            best = took;
            offset = real - before;
        }
    }
    return offset / 1000;
}

/* `slack` is the uncertainty of the readings, in ms: a reading is made at an unknown moment of an
 * examination, and an examination takes long on a busy machine. */
static void judge_clock(report *r, int64_t before, int64_t after, int64_t own, int64_t slack)
{
    int64_t step = after - before + own, limit = STEP_MS + slack;
    char what[160];

    if (after > OFFSET_MS + slack || after < -OFFSET_MS - slack) {
        snprintf(what, sizeof what, "the server's clock is %lld s %s this machine's",
                 (long long)((after < 0 ? -after : after) / 1000),
                 after < 0 ? "behind" : "ahead of");
        report_found(r, PAWL_FINDING_WARNING, "clock-offset", what,
                     "One of the two clocks is wrong. Its correction may be a step, and a step of "
                     "the server's clock ends leases too early or too late.",
                     "Let an NTP service (chrony, ntpd) keep the clocks of all machines.");
    }
    if (step > limit || step < -limit) {
        snprintf(what, sizeof what, "within a second the server's clock went %lld ms too far %s",
                 (long long)(step < 0 ? -step : step), step < 0 ? "back" : "ahead");
        report_found(r, PAWL_FINDING_DANGER, "clock-step", what,
                     "Leases are counted by the server's clock: a step ahead ends leases that are "
                     "still in use, a step back keeps locks of dead holders.",
                     "Find out what sets the server's clock; let chrony or ntpd slew it instead.");
    }
}

/* Add only findings that the first examination did not have. They are compared by id and place,
 * because numbers in their texts may have changed. */
static int merge(void *arg, const pawl_finding *f)
{
    bool fresh = f->level >= PAWL_FINDING_WARNING && !report_knows(arg, f->id, f->where);

    return fresh ? report_add(arg, f) : 0;
}

static void judge_own_clock(report *r, int64_t step)
{
    if (step <= STEP_MS && step >= -STEP_MS)
        return;
    report_found(r, PAWL_FINDING_WARNING, "own-clock-step", "this machine's clock was set",
                 "Times in logs and in pawl show are wrong; leases of local: are not affected.",
                 "Let chrony or ntpd slew the clock instead of setting it.");
}

int check_again(report *r, pawl_client *client, pawl_error *err)
{
    int64_t own = own_clock_ms(), before, after;
    report second;
    int code;

    usleep(AGAIN_MS * 1000);
    report_begin(&second);
    code = check_service(&second, client, err);
    own = own_clock_ms() - own;
    for (size_t i = 0; !code && report_fact(r, "clock", i, &before) &&
                       report_fact(&second, "clock", i, &after); i++)
        judge_clock(r, before, after, own, (r->exam_us + second.exam_us) / 1000);
    judge_own_clock(r, own);
    if (!code)
        report_each(&second, merge, r);
    report_free(&second);
    return code;
}
