/* SPDX-License-Identifier: Apache-2.0
 *
 * examine.c - EXAMINE: the state of the member that this client is connected to
 * (Maintenance.Status, which also names the alarms of the cluster), the user's rights (rights.c),
 * the list of members, and whether each endpoint of the URL accepts connections.
 */
#include "exam.h"
#include "examine.h"

static const char *where_of(const etcd *e)
{
    return e->settings.endpoints.list[e->link.endpoint].where;
}

static void found(const etcd_job *job, uint64_t level, const char *id, const char *what,
                  const char *why, const char *remedy)
{
    pawl_op_found(job->op, level, id, where_of(job->e), what, why, remedy);
}

/* ---- endpoints ------------------------------------------------------------------------------- */

static void probed(etcd_job *job)
{
    etcd_exam *x = job->data;

    if (!--x->out)
        etcd_job_done(job, 0, NULL);
}

static void probe_done(net_probe *p)
{
    etcd_job *job = p->arg;
    char what[300];

    snprintf(what, sizeof what, "the member can't be connected to: %.200s", p->words);
    if (!p->answered)
        pawl_op_found(job->op, PAWL_FINDING_WARNING, "etcd-down", p->at->where, what,
                      "The cluster works with a majority: fewer other members may fail before no "
                      "lock can be taken.", "Start the member; etcdctl endpoint health --cluster.");
    probed(job);
}

static void probe_all(etcd_job *job)
{
    const etcd_settings *s = &job->e->settings;
    etcd_exam *x = job->data;

    job->waits = true;
    x->out = 1;
    for (size_t i = 0; i < s->endpoints.n; i++) {
        net_probe *p = &x->probes[i];

        *p = (net_probe){.env = job->e->env, .at = &s->endpoints.list[i],
            .tls_context = job->e->link.tls_context, .tls = *job->e->link.stream.tls, .arg = job,
            .done = probe_done};
        x->out++;
        net_probe_start(p);
    }
    probed(job);
}

static void end_probes(etcd_job *job)
{
    etcd_exam *x = job->data;

    for (size_t i = 0; i < job->e->settings.endpoints.n; i++)
        net_probe_end(&x->probes[i]);
}

/* ---- members --------------------------------------------------------------------------------- */

/* Member: isLearner = 5. */
static bool is_learner(pb_span member)
{
    pb_field field;

    while (etcd_pb_next(&member, &field) > 0)
        if (field.number == 5 && field.type == PB_NUMBER)
            return field.value;
    return false;
}

/* MemberListResponse: members = 2. Learners don't vote, so they don't count. */
static bool answer_members(etcd_call *call, pb_span message)
{
    etcd_job *job = etcd_job_of(call);
    pb_field field;
    size_t n = 0;
    int more;

    while ((more = etcd_pb_next(&message, &field)) > 0)
        n += field.number == 2 && field.type == PB_BYTES && !is_learner(field.bytes);
    if (more < 0)
        return false;
    if (n == 2)
        found(job, PAWL_FINDING_WARNING, "etcd-members", "the cluster has two members",
              "Two members need each other: when either fails, no lock can be taken or renewed. "
              "One member alone would be more available.", "Add a third member.");
    if (n > 1 && job->e->settings.endpoints.n == 1)
        found(job, PAWL_FINDING_WARNING, "etcd-endpoints",
              "the URL names one of the cluster's members only",
              "While this member is down, this client loses its locks though the cluster works.",
              "Name all members in the URL, with commas between them.");
    probe_all(job);
    return true;
}

/* A learner and a member without a leader refuse the list; the status call reports both already. */
static bool refused_by_state(const char *words)
{
    return strstr(words, "not supported for learner") || strstr(words, "no leader");
}

static void members_failed(etcd_call *call, int code, const char *words)
{
    etcd_job *job = call->about;

    if (code != PAWL_EAUTH && !refused_by_state(words)) {
        etcd_job_failed(call, code, words);
        return;
    }
    etcd_job_of(call);
    found(job, PAWL_FINDING_SKIPPED, "etcd-members", "the members were not checked", "", words);
    probe_all(job);
}

void etcd_exam_members(etcd_job *job)
{
    static const etcd_call_type type = {.path = "/etcdserverpb.Cluster/MemberList",
        .answer = answer_members, .failed = members_failed};
    etcd_call *call = etcd_job_call(job, &type);

    if (call)
        etcd_job_send(job, call);
}

/* ---- status ---------------------------------------------------------------------------------- */

static void look_at_alarms(const etcd_job *job, const etcd_status *s)
{
    char what[260];

    if (!s->errors[0])
        return;
    snprintf(what, sizeof what, "the cluster reports: %s", s->errors);
    pawl_text_clean(what);
    if (strstr(s->errors, "NOSPACE"))
        found(job, PAWL_FINDING_DANGER, "etcd-alarm", what,
              "The database is full. The cluster refuses every write, so no lock can be taken.",
              "etcdctl compact REVISION; etcdctl defrag; etcdctl alarm disarm. Raise "
              "--quota-backend-bytes, and set --auto-compaction-retention.");
    else
        found(job, PAWL_FINDING_DANGER, "etcd-alarm", what,
              "A cluster with an alarm may refuse writes or disagree about its data.",
              "etcdctl alarm list; etcdctl endpoint status. Look at the servers' logs.");
}

static void no_leader(const etcd_job *job)
{
    found(job, PAWL_FINDING_DANGER, "etcd-leader", "the member knows no leader",
          "Without a leader no lock can be taken or renewed.",
          "Find out which members are down: etcdctl endpoint health --cluster.");
}

static void look_at_version(const etcd_job *job, const char *version)
{
    unsigned major, minor, patch;
    char what[160];

    if (sscanf(version, "%4u.%4u.%4u", &major, &minor, &patch) != 3 || major != 3)
        return;
    if (minor == 5 && patch < 3) {
        found(job, PAWL_FINDING_DANGER, "etcd-version", "etcd 3.5.0 to 3.5.2 can lose data",
              "A member that is killed under load may come back with other data than the rest.",
              "Upgrade to 3.5.13 or newer.");
    } else if (minor < 4 || (minor == 4 && patch < 31) || (minor == 5 && patch < 13)) {
        snprintf(what, sizeof what, "in etcd %u.%u.%u a leader that was stopped and wakes up may "
                 "revoke leases that it no longer manages (#15247)", major, minor, patch);
        found(job, PAWL_FINDING_WARNING, "etcd-version", what,
              "Locks of healthy holders end, and other clients get them. The holders are told at "
              "once, but both may work for a moment.",
              "Upgrade to 3.4.31, 3.5.13 or newer; or let the resource check fencing tokens "
              "(docs/fencing.md).");
    }
}

static void look_at_status(const etcd_job *job, const etcd_status *s)
{
    char what[120];

    look_at_alarms(job, s);
    if (!s->leader)
        no_leader(job);
    if (s->learner)
        found(job, PAWL_FINDING_WARNING, "etcd-learner", "this member is a learner",
              "A learner answers few requests, and no writes.", "Name voting members in the URL.");
    look_at_version(job, s->version);
    if (s->quota && s->db_size > s->quota / 10 * 8) {
        snprintf(what, sizeof what, "the database has %llu of at most %llu MB",
                 (unsigned long long)s->db_size >> 20, (unsigned long long)s->quota >> 20);
        found(job, PAWL_FINDING_WARNING, "etcd-quota", what,
              "At the limit the cluster refuses every write, and no lock can be taken.",
              "Compact and defragment, or raise --quota-backend-bytes.");
    }
}

static bool answer_status(etcd_call *call, pb_span message)
{
    const etcd_settings *set = &call->e->settings;
    etcd_status s;
    char what[48];
    etcd_job *job;

    if (!etcd_read_status(message, &s))
        return false;
    job = etcd_job_of(call);
    snprintf(what, sizeof what, "etcd %s", s.version);
    pawl_text_clean(what);
    pawl_op_fact(job->op, "server", where_of(job->e), what, 0);
    examine_network(job->op, where_of(job->e), job->e->link.stream.fd, set->tls,
                    set->tls_settings.verify);
    look_at_status(job, &s);
    if (s.learner || !s.leader) /* such a member refuses nearly every request */
        etcd_exam_members(job);
    else
        etcd_exam_rights(job);
    return true;
}

/* A member without a leader refuses every request that requires one, as all requests of Pawl do. */
static void status_failed(etcd_call *call, int code, const char *words)
{
    etcd_job *job = call->about;

    if (!strstr(words, "no leader")) {
        etcd_job_failed(call, code, words);
        return;
    }
    etcd_job_of(call);
    no_leader(job);
    probe_all(job);
}

static void start(etcd_job *job)
{
    static const etcd_call_type type = {.path = "/etcdserverpb.Maintenance/Status",
        .answer = answer_status, .failed = status_failed};
    etcd_call *call = etcd_job_call(job, &type);

    if (call)
        etcd_job_send(job, call);
}

void etcd_examine(etcd *e, pawl_op *op)
{
    etcd_job *job = etcd_job_new(e, op, start,
                                 sizeof(etcd_exam) + e->settings.endpoints.n * sizeof(net_probe));

    if (!job)
        return;
    job->finish = end_probes;
    job->reads = true;
    etcd_job_start(job);
}
