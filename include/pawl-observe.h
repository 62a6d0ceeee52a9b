/* SPDX-License-Identifier: Apache-2.0
 *
 * pawl-observe.h - metrics and tracing of a program's own locks, an examination of the service, and
 * a list of engines and libraries.
 *
 *     char *text;
 *
 *     if (pawl_metrics(&client, 1, PAWL_METRICS_PROMETHEUS, &text, &err) == 0) {
 *         send_response("text/plain; version=0.0.4; charset=utf-8", text);
 *         free(text);
 *     }
 */
#ifndef PAWL_OBSERVE_H
#define PAWL_OBSERVE_H

#include "pawl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Metrics --------------------------------------------------------------------------------- */

/* The Content-Type of an HTTP response goes with the format. */
enum pawl_metrics_format {
    PAWL_METRICS_PROMETHEUS = 0, /* text/plain; version=0.0.4; charset=utf-8 */
    PAWL_METRICS_OPENMETRICS = 1 /* application/openmetrics-text; version=1.0.0; charset=utf-8 */
};

/* Write the counters of `n` clients (pawl_stats) as the text that Prometheus reads. *ret becomes a
 * string that the caller frees with free().
 *
 * The metrics: gauges pawl_held and pawl_waiting; histograms pawl_wait_seconds (from the call to
 * the grant) and pawl_hold_seconds (from the grant to the release or loss); counters
 * pawl_acquired_total, pawl_not_acquired_total, pawl_waited_total, pawl_handed_over_total,
 * pawl_released_total, pawl_renewed_total, pawl_lost_total, pawl_orphaned_total; and, without the
 * label `lock`, pawl_reconnects_total, pawl_failovers_total, pawl_unanswered_total,
 * pawl_repeated_total, and the gauge pawl_build_info.
 *
 * The label `lock` is the template of the name: each id (a UUID, a run of digits, 8 or more
 * hexadecimal digits, 16 or more letters and digits) becomes `*`, so "stock:4711" counts as
 * "stock:*". A client has at most 64 templates, in order of first use; all later ones count as
 * "other". The label `client` is the client's label option, absent if that is empty; if two of the
 * clients have the same label, "#2", "#3" ... is appended.
 *
 * Returns 0, PAWL_EINVAL, PAWL_ESTATE (a client is closed), PAWL_EFORK, PAWL_ENOMEM.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API int pawl_metrics(pawl_client *const *clients, size_t n, uint64_t format, char **ret,
                          pawl_error *err);

/* ---- Losses ---------------------------------------------------------------------------------- */

/* The cause of a loss in words, longer than pawl_lost_text: who broke the lock ("it was broken by
 * pid 4711 pawl (deploy) on web1", in the breaker's own words, if the service passes them on; see
 * docs/operations.md), or how long before the end of the lease the service last answered. The text
 * of PAWL_ELOST has the same words. Writes at most `size` bytes with the 0 at the end, and returns
 * `text`. The text is "" if nothing was lost, or after the release. No I/O. The calling owner is as
 * for pawl_lock_lost_reason and pawl_semaphore_lost_reason.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API const char *pawl_lock_lost_cause(const pawl_lock *lock, char *text, size_t size);

/* The same for permits of a semaphore.
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API const char *pawl_semaphore_lost_cause(const pawl_semaphore *sem, char *text,
                                               size_t size);

/* ---- Tracing --------------------------------------------------------------------------------- */

enum pawl_trace_event {
    PAWL_TRACE_WAIT_BEGIN = 1, /* an acquire has begun */
    PAWL_TRACE_WAIT_END = 2,   /* `code`: 0 granted, or why not */
    PAWL_TRACE_HOLD_BEGIN = 3, /* follows WAIT_END with code 0 */
    PAWL_TRACE_HOLD_END = 4    /* `code`: 0 the release was sent, or PAWL_ELOST */
};

/* One event of one acquire of a lock or of permits. All events of an acquire have the same `id`.
 * Acquires that a re-entrant lock or a busy try answers without the service have no events; a
 * multi-lock has the events of its members. Strings are valid during the call. */
struct pawl_trace {
    uint64_t size;
    uint64_t event;      /* enum pawl_trace_event */
    uint64_t id;         /* unique in the client */
    const char *name;
    const void *handle;  /* the pawl_lock or pawl_semaphore, to compare, not to use; NULL: freed */
    uint64_t type;       /* enum pawl_type: PAWL_TYPE_LOCK or PAWL_TYPE_SEMAPHORE */
    uint64_t kind;       /* enum pawl_kind, of a lock */
    int64_t at_ns;       /* when: CLOCK_BOOTTIME */
    int64_t lasted_ns;   /* WAIT_END, HOLD_END: how long the wait or the hold was; else 0 */
    int64_t code;
    uint64_t token;      /* HOLD_BEGIN, HOLD_END: the fencing token; else 0 */
};

/* The function in pawl_client_options.trace is called soon after the event, by the thread that
 * caused the event or by another thread inside a Pawl call or by Pawl's own thread, with no mutex
 * of Pawl's locked. Calls from several threads may overlap, and a thread that is preempted before
 * its call makes the call late. So record the times `at_ns` and `lasted_ns`, and order the events
 * of an acquire by `event`. The function must not call Pawl, and should be short. */

/* ---- Examining the service ------------------------------------------------------------------- */

enum pawl_finding_level {
    PAWL_FINDING_FACT = 0,    /* nothing is wrong: the server's version, its clock ... */
    PAWL_FINDING_SKIPPED = 1, /* could not be checked; `remedy` says how to allow the check */
    PAWL_FINDING_WARNING = 2, /* weakens locks, or will stop them under load or after a failure */
    PAWL_FINDING_DANGER = 3   /* a lock may be granted twice, or can't be granted at all */
};

/* One finding. Strings are valid during the call, "" if there is nothing to say. `id` is short and
 * stable ("redis-eviction"); docs/doctor.md lists all ids. */
typedef struct pawl_finding {
    uint64_t size;
    uint64_t level;     /* enum pawl_finding_level */
    const char *id;
    const char *where;  /* which server or folder */
    const char *what;   /* the fact or the defect */
    const char *why;    /* why that matters to locks */
    const char *remedy; /* how to correct it: a setting, or the statement that grants a right */
    int64_t value;      /* FACT: its number. "clock": the server's time minus this machine's, ms;
                           "machine": 1 if the server is on this machine, else 0 */
} pawl_finding;

/* Receives each finding; a result other than 0 ends the report, and pawl_examine returns that
 * result. The function runs in the calling thread, after the examination, and may call Pawl. */
typedef int pawl_finding_fn(void *arg, const pawl_finding *finding);

/* Ask the service for settings and faults that break locks: eviction, persistence, replicas,
 * missing rights, TLS ... PAWL_ENOTSUP: the engine can't tell. `pawl doctor` prints the findings.
 * Thread: any. Blocks: up to the time-out. In callbacks: PAWL_EDEADLK. */
PAWL_API int pawl_examine(pawl_client *client, pawl_finding_fn *fn, void *arg, pawl_error *err);

/* ---- Engines and libraries ------------------------------------------------------------------- */

/* The libraries that the running library uses, with their versions: "libuv 1.44.2, OpenSSL 3.0.14".
 * Thread: any. Blocks: no. In callbacks: yes. */
PAWL_API const char *pawl_libraries(void);

/* An engine: a URL scheme that this library can open. Strings are valid during the call. */
typedef struct pawl_engine_info {
    uint64_t size;
    const char *scheme;    /* "redis" */
    const char *module;    /* the file of a module; "": built in */
    const char *libraries; /* of a module, with their versions: "libpq 15.3"; "" if none */
    const char *trouble;   /* why the module can't be used; "": nothing is wrong */
} pawl_engine_info;

/* Receives each engine; a result other than 0 ends the list, and pawl_engines returns that result.
 * The function must not call pawl_open or pawl_engines. */
typedef int pawl_engine_info_fn(void *arg, const pawl_engine_info *info);

/* List the built-in engines, and then the modules on this machine, which are loaded for this call.
 * Returns 0, PAWL_EINVAL (fn is NULL), or the result of fn.
 * Thread: any. Blocks: reads files. In callbacks: yes. */
PAWL_API int pawl_engines(pawl_engine_info_fn *fn, void *arg);

#ifdef __cplusplus
}
#endif
#endif
