/* SPDX-License-Identifier: Apache-2.0
 *
 * group.h - is anything of a process group still running?
 *
 * Async-signal-safe, for the guardian.
 */
#ifndef PAWL_GROUP_H
#define PAWL_GROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* True while a process of the group can still do something. Zombies can't: kill(2) counts them, and
 * in a container whose first process doesn't reap they stay for ever. */
bool group_alive(pid_t group);

/* Can zombies be told from the others here? Not without /proc, nor with that of another PID
 * namespace, where processes have other numbers: a group counts as alive to its last zombie. */
bool group_visible(void);

/* Wait for that to end, at most `ns`. Returns whether it has. */
bool group_wait_gone(pid_t group, int64_t ns);

/* Nanoseconds of CLOCK_BOOTTIME, which counts on while the machine sleeps. */
int64_t boot_now(void);

#endif
