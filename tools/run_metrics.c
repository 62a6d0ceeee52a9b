/* SPDX-License-Identifier: Apache-2.0
 *
 * run_metrics.c - pawl run --metrics FILE: a text file for the node_exporter of Prometheus.
 *
 * The file is written three times: when the wait begins, when the lock is acquired, and at the end.
 * It is never written while the command runs, because a slow disk must not delay a renewal. Each
 * time the whole file is written under another name and renamed, so that a reader finds either the
 * old or the new file, never a part. If the file can't be written, this is reported once and has no
 * other effect.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../src/template.h"
#include "pawl-observe.h"
#include "run_hold.h"

static void gauge(FILE *out, const char *name, const char *label, const char *help, double value)
{
    fprintf(out, "# HELP pawl_run_%s %s\n# TYPE pawl_run_%s gauge\npawl_run_%s{name=\"%s\"} %.3f\n",
            name, help, name, name, label, value);
}

static double wall(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void write_text(const run_metrics *m, const hold *h, FILE *out, int status)
{
    char name[1300], label[2600], *text = NULL;

    pawl__label_escape(label, text_copy(name, sizeof name, h->options->name));
    gauge(out, "start_time_seconds", label, "When pawl run was started.", m->started);
    gauge(out, "acquired_time_seconds", label, "When the lock was acquired; 0: not yet, or not.",
          m->acquired);
    gauge(out, "end_time_seconds", label, "When the command had ended; 0: not yet.", m->ended);
    if (m->ended > 0)
        gauge(out, "exit_status", label, "The exit status of pawl run.", status);
    if (h->client && !pawl_metrics(&h->client, 1, PAWL_METRICS_PROMETHEUS, &text, NULL))
        fputs(text, out);
    free(text);
}

/* Returns 0 or an errno. */
static int write_file(const run_metrics *m, const hold *h, const char *path, int status)
{
    char part[4096];
    int fd, error = 0;
    FILE *out;

    if ((size_t)snprintf(part, sizeof part, "%s.%lld.tmp", path, (long long)getpid()) >=
        sizeof part)
        return ENAMETOOLONG;
    fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    out = fd < 0 ? NULL : fdopen(fd, "w");
    if (!out)
        return errno;
    write_text(m, h, out, status);
    if (ferror(out))
        error = EIO;
    if (fclose(out) && !error)
        error = errno;
    if (!error && rename(part, path))
        error = errno;
    if (error)
        unlink(part);
    return error;
}

void run_metrics_write(run_metrics *m, const hold *h, int phase, int status)
{
    const char *path = h->options ? h->options->metrics : NULL;
    int error;

    if (!path)
        return;
    if (phase == RUN_WAITS)
        m->started = wall();
    else if (phase == RUN_HOLDS)
        m->acquired = wall();
    else
        m->ended = wall();
    error = write_file(m, h, path, status);
    if (error && !m->complained)
        say("can't write the metrics to '%s': %s", path, strerror(error));
    m->complained |= error != 0;
}
