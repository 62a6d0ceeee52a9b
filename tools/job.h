/* SPDX-License-Identifier: Apache-2.0
 *
 * job.h - the command of `pawl run`: started in a process group of its own, treated as a shell
 * treats a job.
 *
 * If `pawl run` is in the foreground of its terminal, the command's group gets the terminal, so
 * that ^C and ^Z reach the command and its children and nothing else. When the command stops, the
 * terminal is taken back and the whole group of `pawl run`, which may be one end of a pipe, stops
 * as well. A SIGCONT to `pawl run` also continues the command.
 *
 * If the output goes into a pipe, the reader of the pipe (a pager) is in our group and may want the
 * terminal. Then the terminal stays with our group; ^C and ^Z reach us and are passed on, and the
 * command gets the terminal only for a read.
 */
#ifndef PAWL_JOB_H
#define PAWL_JOB_H

#include "await.h"
#include "guardian.h"

typedef struct job {
    pid_t pid;     /* also the number of the command's group */
    int tty;       /* a descriptor of the controlling terminal, or -1 */
    bool lent;     /* the terminal was given to the command */
    bool piped;    /* our output goes into a pipe: the terminal stays with our group */
    bool stopped;  /* the command stopped, and this process stopped with it */
    bool interrupted; /* ended by SIGINT while the command had the terminal */
} job;

/* Start the command. Returns 0 or an errno. A command that can't be executed ends with 126 or 127
 * after a message. */
int job_start(job *, char **command, const signals *, guardian *);

/* Pass a signal on to the group. SIGCONT also gives the terminal back. */
void job_signal(job *, int signal);

/* Check the command's state, and handle stops. True: the command has ended; call job_reap. */
bool job_ended(job *);

/* The exit status as in a shell. Takes the terminal back. */
int job_reap(job *);

#endif
