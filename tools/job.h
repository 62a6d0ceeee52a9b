/* SPDX-License-Identifier: Apache-2.0
 *
 * job.h - the command of `pawl run`: started in a process group of its own, treated as a shell
 * treats a job.
 *
 * If `pawl run` is in the foreground of its terminal, the command's group gets the terminal, so
 * that ^C and ^Z reach the command and its children and nothing else. When the command stops, the
 * terminal is taken back and `pawl run` stops as well (its own group with it: it may be one end of
 * a pipe); when it is continued, so is the command.
 *
 * If the output goes into a pipe, the reader of the pipe (a pager) is in our group and may want the
 * terminal. Then the terminal stays with our group; ^C and ^Z reach us and are passed on, and the
 * command gets the terminal only when it reads from it.
 */
#ifndef PAWL_JOB_H
#define PAWL_JOB_H

#include "await.h"
#include "guardian.h"

typedef struct job {
    pid_t pid;     /* also the number of its group */
    int tty;       /* the controlling terminal, or -1 */
    bool lent;     /* the terminal was given to the command */
    bool piped;    /* our output goes into a pipe: the terminal stays with our group */
    bool stopped;  /* it stopped, and this process with it */
    bool interrupted; /* ended by SIGINT while it had the terminal */
} job;

/* Start the command. Returns 0 or an errno. A command that can't be executed ends with 126 or 127
 * after a message, like one that ran. */
int job_start(job *, char **command, const signals *, guardian *);

/* Pass a signal on to the group. SIGCONT also gives the terminal back. */
void job_signal(job *, int signal);

/* Look what became of it; deals with stops. True: it has ended, and is left for job_reap. */
bool job_ended(job *);

/* Its exit status as a shell would say it. Takes the terminal back. */
int job_reap(job *);

#endif
