/* SPDX-License-Identifier: Apache-2.0
 *
 * await.h - waiting for an operation that takes time, with signals that cancel the operation.
 *
 * Signals are blocked before the client is opened (so that Pawl's threads inherit that) and read
 * from a descriptor in the main loop. Nothing ever runs in a signal handler. No disposition is
 * changed except SIGCHLD's, which a caller may have left ignored; a command gets the old one back.
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
    struct sigaction old_chld; /* likewise */
} signals;

/* Block and collect SIGINT SIGTERM SIGHUP SIGQUIT SIGUSR1 SIGUSR2 (unless ignored), and SIGCHLD and
 * SIGCONT. SIGTTOU is blocked too: a background process must be able to hand the terminal on; and
 * SIGTTIN: a pager in our group that reads the terminal while the command has it must not stop us,
 * too. Returns 0 or an errno. */
int signals_open(signals *);
void signals_close(signals *);

/* In a forked child, before exec. */
void signals_restore(const signals *);

/* The next pending signal, or 0. */
int signals_next(const signals *);

/* Something under way. */
typedef struct task task;
struct task {
    int fd;                     /* readable when step() has something to do */
    bool (*step)(task *);       /* one step; true: finished */
    void (*cancel)(task *);     /* finish soon; may be called again */
    void (*second)(task *);     /* NULL, or called about once a second until the end, */
    int64_t pause_ms;           /* or, if not 0, after so many ms; second() may change both */
};

/* Wait until the task is finished. A signal that asks to end cancels the task. Returns that signal,
 * or 0. */
int await(task *, const signals *);

/* A blocking call on a thread of its own, as a task. States: running (the thread's), then `done` is
 * set and the descriptor written; after call_end, which joins the thread, `code` may be read. */
typedef struct call {
    task task;                  /* first: passed to step */
    int (*fn)(struct call *);   /* on the thread */
    int code;                   /* the return value of fn */
    atomic_bool done;
    pthread_t thread;
} call;

/* fn and task.cancel are set. Returns 0 or an errno. */
int call_start(call *);
int call_end(call *);

#endif
