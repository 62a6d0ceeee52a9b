/* SPDX-License-Identifier: Apache-2.0
 *
 * group.h - tells whether a process of a process group is still running.
 *
 * All functions are async-signal-safe, because the guardian calls them.
 */
#ifndef PAWL_GROUP_H
#define PAWL_GROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* True while a process of the group can still do something. Zombies don't count: kill(2) reports
 * zombies as alive, and zombies stay for ever in a container whose first process doesn't reap. */
bool group_alive(pid_t group);

/* Whether group_alive can tell zombies from other processes. Without /proc, or with the /proc of
 * another PID namespace, where processes have other numbers, group_alive can't: a group then counts
 * as alive until its last zombie is gone. */
bool group_visible(void);

/* Wait until the group is no longer alive, at most `ns`. Returns false if the time ran out. */
bool group_wait_gone(pid_t group, int64_t ns);

#endif
