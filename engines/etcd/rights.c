/* SPDX-License-Identifier: Apache-2.0
 *
 * rights.c - a part of EXAMINE: may the user read and write every key below the prefix?
 *
 * The client asks for one key of the whole range. Then it sends a transaction whose `else` branch
 * deletes the whole range. The server checks the right to do so, but never carries the branch out,
 * because the transaction has no condition that could fail.
 */
#include "exam.h"

/* The prefix as a word of a shell. */
static void quoted(char *out, size_t size, const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./:";
    size_t n = 0;

    if (*text && !text[strspn(text, plain)]) {
        snprintf(out, size, "%s", text);
        return;
    }
    out[n++] = '\'';
    for (; *text && n + 6 < size; text++)
        n += (size_t)snprintf(out + n, size - n, "%.*s", *text == '\'' ? 4 : 1,
                              *text == '\'' ? "'\\''" : text);
    snprintf(out + n, size - n, "'");
}

static void tell(const etcd_job *job, bool read, bool write)
{
    const etcd_settings *s = &job->e->settings;
    char what[600], remedy[1600], prefix[4 * ETCD_PREFIX_MAX + 3], user[200];

    if (read && write)
        return;
    quoted(prefix, sizeof prefix, s->prefix);
    quoted(user, sizeof user, s->login.user);
    snprintf(what, sizeof what, "the user %.100s may not %s the keys that begin with \"%s\"",
             s->login.user, read ? "write" : write ? "read" : "read and write", s->prefix);
    snprintf(remedy, sizeof remedy, "etcdctl role add pawl; etcdctl role grant-permission pawl "
             "--prefix=true readwrite %s; etcdctl user grant-role %s pawl", prefix, user);
    pawl_op_found(job->op, PAWL_FINDING_DANGER, "rights",
                  s->endpoints.list[job->e->link.endpoint].where, what,
                  write ? "Nobody sees who holds a lock, and no lock can be taken."
                        : "No lock can be taken.",
                  remedy);
}

/* ---- write ----------------------------------------------------------------------------------- */

static bool may_write(etcd_call *call, pb_span message)
{
    etcd_job *job = etcd_job_of(call);

    (void)message;
    tell(job, !((etcd_exam *)job->data)->unreadable, true);
    etcd_exam_members(job);
    return true;
}

static void write_failed(etcd_call *call, int code, const char *words)
{
    etcd_job *job = call->about;

    if (code != PAWL_EAUTH) {
        etcd_job_failed(call, code, words);
        return;
    }
    etcd_job_of(call);
    tell(job, !((etcd_exam *)job->data)->unreadable, false);
    etcd_exam_members(job);
}

static void ask_write(etcd_job *job)
{
    static const etcd_call_type type = {.path = "/etcdserverpb.KV/Txn", .answer = may_write,
        .failed = write_failed};
    etcd_call *call = etcd_job_call(job, &type);
    etcd_bounds bounds;

    if (!call)
        return;
    etcd_do_delete(&call->body, ETCD_ELSE, etcd_bounds_of(&bounds, job->e, NULL, ETCD_ALL));
    etcd_job_send(job, call);
}

/* ---- read ------------------------------------------------------------------------------------ */

static bool may_read(etcd_call *call, pb_span message)
{
    (void)message;
    ask_write(etcd_job_of(call));
    return true;
}

static void read_failed(etcd_call *call, int code, const char *words)
{
    etcd_job *job = call->about;

    if (code != PAWL_EAUTH) {
        etcd_job_failed(call, code, words);
        return;
    }
    etcd_job_of(call);
    ((etcd_exam *)job->data)->unreadable = true;
    ask_write(job);
}

/* Without a user there are no rights: either the server asks for none, or the first use of a lock
 * fails. */
void etcd_exam_rights(etcd_job *job)
{
    static const etcd_call_type type = {.path = "/etcdserverpb.KV/Range", .answer = may_read,
        .failed = read_failed};
    etcd_query q = {.limit = 1, .keys_only = true};
    etcd_bounds bounds;
    etcd_call *call;

    ((etcd_exam *)job->data)->unreadable = false;
    if (!job->e->settings.login.user) {
        etcd_exam_members(job);
        return;
    }
    call = etcd_job_call(job, &type);
    if (!call)
        return;
    q.range = *etcd_bounds_of(&bounds, job->e, NULL, ETCD_ALL);
    etcd_put_range(&call->body, &q);
    etcd_job_send(job, call);
}
