/* SPDX-License-Identifier: Apache-2.0
 *
 * run_hold.c - acquire, watch and release the lock or permit of `pawl run`.
 */
#include "run_hold.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "clock.h"

#define CONTACT_NS 10000000 /* the deadline is accurate to a few ms */

static void on_lost(void *arg, pawl_lock *lock, int code)
{
    hold *h = arg;
    uint64_t one = 1;
    ssize_t n;

    (void)code;
    if (lock)
        pawl_lock_lost_cause(lock, h->cause, sizeof h->cause);
    else
        pawl_semaphore_lost_cause(h->sem, h->cause, sizeof h->cause);
    atomic_store(&h->why, lock ? pawl_lock_lost_reason(lock)
                               : pawl_semaphore_lost_reason(h->sem));
    atomic_store(&h->lost, true);
    n = write(h->event, &one, sizeof one);
    (void)n; /* the write succeeds, or the eventfd is readable already */
}

static int make_handle(hold *h)
{
    const run_options *o = h->options;
    pawl_lock_options lock = {.size = sizeof lock,
                              .kind = o->shared ? PAWL_READ : PAWL_MUTEX,
                              .owner = PAWL_OWNER_HANDLE,
                              .on_lost = on_lost,
                              .arg = h,
                              .at_least_ms = o->at_least_ms};
    pawl_semaphore_options sem = {
        .size = sizeof sem, .permits = o->permits, .on_lost = on_lost, .arg = h};

    if (o->permits)
        return pawl_semaphore_new(&h->sem, h->client, o->name, &sem, &h->err);
    return pawl_lock_new(&h->lock, h->client, o->name, &lock, &h->err);
}

int hold_open(hold *h, const tool *t, const run_options *o)
{
    const char *slash = strrchr(o->command[0], '/');
    /* The command's name tells an operator more than "pawl" does; the arguments may be secret. */
    pawl_client_options client = {.label = slash ? slash + 1 : o->command[0],
                                  .watchdog_ms = o->lease_ms};
    int status;

    *h = (hold){.tool = t, .options = o, .event = -1};
    h->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (h->event < 0) {
        say("no descriptor: %s", strerror(errno));
        return STATUS_SYSTEM;
    }
    status = client_open(t, &h->client, &client);
    if (status)
        return status;
    h->err.code = make_handle(h);
    return h->err.code ? failed(t, "can't use it", &h->err) : 0;
}

/* ---- A lock: through the client's descriptor ----------------------------------------------- */

static void lock_done(void *arg, pawl_lock *lock, int code)
{
    hold *h = arg;

    (void)lock;
    h->done = true;
    h->code = code;
}

static bool lock_step(task *t)
{
    hold *h = (hold *)t;

    pawl_client_process(h->client);
    return h->done;
}

static void lock_cancel(task *t)
{
    pawl_lock_cancel(((hold *)t)->lock);
}

static int lock_acquire(hold *h, const signals *s, int *ended_by)
{
    int code;

    h->call.task.fd = pawl_client_fd(h->client);
    if (h->call.task.fd < 0)
        return h->call.task.fd;
    h->call.task.step = lock_step;
    h->call.task.cancel = lock_cancel;
    code = pawl_lock_acquire_start(h->lock, h->options->wait_ms, lock_done, h);
    if (code)
        return code;
    *ended_by = await(&h->call.task, s);
    return h->code;
}

/* ---- A permit: on a thread ----------------------------------------------------------------- */

static int permit_call(call *c)
{
    hold *h = (hold *)c;

    return pawl_semaphore_acquire(h->sem, 1, h->options->wait_ms, &h->err);
}

static void permit_cancel(task *t)
{
    pawl_semaphore_cancel(((hold *)t)->sem);
}

static int permit_acquire(hold *h, const signals *s, int *ended_by)
{
    h->call.fn = permit_call;
    h->call.task.cancel = permit_cancel;
    if (call_start(&h->call))
        return PAWL_ENOMEM;
    *ended_by = await(&h->call.task, s);
    return call_end(&h->call);
}

/* ---- Either -------------------------------------------------------------------------------- */

/* Detect a deadlock: the command of `pawl run` asks for the lock of the same run, so each waits for
 * the other. Tokens can be compared only within one service. A URL with a password is not passed on
 * to the command, so in this case the token alone decides. */
static bool waits_for_itself(hold *h)
{
    const run_options *o = h->options;
    const char *name = getenv("PAWL_NAME"), *token = getenv("PAWL_TOKEN"), *url = h->tool->url;
    const tool outside = {0};
    name_info n = {0};

    if (o->wait_ms != PAWL_FOREVER || !name || strcmp(name, o->name) || !token)
        return false;
    if (url && strcmp(url, service_url(&outside)) && !url_has_password(url))
        return false;
    n.token = strtoull(token, NULL, 10);
    if (inspect_name(h->client, o->name, &n, NULL) || !n.pid)
        return false;
    if (n.type == PAWL_TYPE_SEMAPHORE ? !o->permits || n.count > 1
                                      : o->permits || (n.shared && o->shared))
        return false;
    say("'%s' is held by the pawl run that started this command (pid %lld): it would wait for "
        "itself", o->name, (long long)n.pid);
    return true;
}

static int acquire_failed(hold *h)
{
    const run_options *o = h->options;

    if (h->err.code == PAWL_ESTATE &&
        say_misfit(h->client, o->name, o->permits ? PAWL_TYPE_SEMAPHORE : PAWL_TYPE_LOCK,
                   o->permits))
        return STATUS_USAGE;
    return failed(h->tool, "can't acquire it", &h->err);
}

int hold_acquire(hold *h, const signals *s)
{
    int ended_by = 0, code;

    if (waits_for_itself(h))
        return STATUS_USAGE;
    h->waiting_since = boot_now();
    waiting_begin(h);
    code = h->sem ? permit_acquire(h, s, &ended_by) : lock_acquire(h, s, &ended_by);
    status_line(NULL);
    if (ended_by) {
        if (!code)
            hold_release(h);
        return STATUS_SIGNAL + ended_by;
    }
    if (code == PAWL_EBUSY || code == PAWL_ETIMEDOUT) {
        if ((h->tool->verbose || code == PAWL_ETIMEDOUT) && !h->silent)
            waiting_say(h, "not acquired");
        return h->options->not_acquired;
    }
    h->err.code = code;
    return code ? acquire_failed(h) : HELD;
}

int hold_fd(const hold *h)
{
    return h->sem ? -1 : h->call.task.fd;
}

void hold_process(hold *h)
{
    if (!h->sem)
        pawl_client_process(h->client);
}

/* The clock is read first: if this process is stopped between the two readings, the result is too
 * early, not too late. */
int64_t hold_deadline(const hold *h)
{
    int64_t now = boot_now();
    int64_t valid = h->sem ? pawl_semaphore_valid_ms(h->sem) : pawl_lock_valid_ms(h->lock);

    return valid > 0 ? now + valid * 1000000 : 0;
}

uint64_t hold_token(const hold *h)
{
    return h->sem ? pawl_semaphore_token(h->sem) : pawl_lock_token(h->lock);
}

/* A renewal moves the deadline, so the service answered at about the time of the last move. */
void hold_note_contact(hold *h, int64_t deadline)
{
    if (deadline > h->deadline + CONTACT_NS) {
        h->deadline = deadline;
        h->contact = boot_now();
    }
}

/* The guardian ended the command because no renewal was confirmed in time, but the library has not
 * reported a loss yet. */
static void silence_cause(const hold *h, char *buf, size_t size)
{
    snprintf(buf, size, "%s, %.1f s after the last contact", pawl_lost_text(PAWL_LOST_SILENCE),
             (double)(boot_now() - h->contact) / 1e9);
}

/* Why the lock was lost. The library forgets the cause when the lock is released, so on_lost
 * has stored the cause. */
const char *hold_lost_cause(const hold *h, char *buf, size_t size)
{
    const char *silence = pawl_lost_text(PAWL_LOST_SILENCE);
    char service[256] = "", cause[256];
    int why = atomic_load(&h->why);
    const char *after = strstr(h->err.text, "was lost: ");

    snprintf(cause, sizeof cause, "%s", why ? h->cause : after ? after + strlen("was lost: ") : "");
    if (!cause[0])
        silence_cause(h, cause, sizeof cause);
    if (!strncmp(cause, silence, strlen(silence)))
        last_warning(service, sizeof service);
    snprintf(buf, size, "%s%s%s%s", cause, service[0] ? " (" : "", service, service[0] ? ")" : "");
    return buf;
}

int hold_release(hold *h)
{
    h->err.text[0] = '\0';
    h->err.code = h->sem ? pawl_semaphore_release(h->sem, 1, &h->err)
                         : pawl_lock_release(h->lock, &h->err);
    return h->err.code;
}

void hold_close(hold *h)
{
    pawl_semaphore_free(h->sem);
    pawl_lock_free(h->lock);
    pawl_close(h->client);
    if (h->event >= 0)
        close(h->event);
}
