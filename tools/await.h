/* SPDX-License-Identifier: Apache-2.0
 *
 * await.h - waiting for an operation that takes time, with signals that cancel the operation.
 *
 * Signals are blocked before the client is opened (so that Pawl's threads inherit the mask) and
 * read from a descriptor in the main loop. There are no signal handlers. No disposition is changed
 * except SIGCHLD's, which a caller may have left ignored; the command gets the old disposition
 * back.
 */
#ifndef PAWL_AWAIT_H
#define PAWL_AWAIT_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct signals {
    int fd;                    /* signalfd */
    sigset_t old;              /* the mask that the command gets back */
    struct sigaction old_chld; /* the disposition of SIGCHLD that the command gets back */
} signals;

/* Block and collect SIGINT SIGTERM SIGHUP SIGQUIT SIGUSR1 SIGUSR2 (unless ignored), SIGCHLD and
 * SIGCONT. Two more signals are only blocked: SIGTTOU, so that a background process can hand the
 * terminal on, and SIGTTIN, so that a pager in our group that reads the terminal while the command
 * has it does not stop this process, too. Returns 0 or an errno. */
int signals_open(signals *);
void signals_close(signals *);

/* Restore mask and disposition, in a forked child before exec. */
void signals_restore(const signals *);

/* The next pending signal, or 0. */
int signals_next(const signals *);

/* An operation under way. */
typedef struct task task;
struct task {
    int fd;                     /* readable when step() has something to do */
    bool (*step)(task *);       /* one step; true: finished */
    void (*cancel)(task *);     /* ask the task to finish soon; may be called again */
    void (*second)(task *);     /* NULL, or called about once a second until the end, */
    int64_t pause_ms;           /* or, if not 0, after this many ms; second() may change both */
};

/* Wait until the task is finished. A signal that asks to end cancels the task. Returns that signal,
 * or 0. */
int await(task *, const signals *);

/* A blocking call on a thread of its own, as a task. The thread runs fn, then sets `done` and
 * writes the descriptor. `code` may be read after call_end, which joins the thread. */
typedef struct call {
    task task;                  /* first: passed to step */
    int (*fn)(struct call *);   /* runs on the thread */
    int code;                   /* the return value of fn */
    atomic_bool done;
    pthread_t thread;
} call;

/* Start the thread; the caller has set fn and task.cancel. Returns 0 or an errno. */
int call_start(call *);
int call_end(call *);

#endif
