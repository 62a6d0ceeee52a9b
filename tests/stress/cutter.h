/* SPDX-License-Identifier: Apache-2.0
 *
 * cutter.h - cut connections of a Redis server at random.
 */
#ifndef PAWL_TEST_CUTTER_H
#define PAWL_TEST_CUTTER_H

#include <stdatomic.h>

/* Connect to the port on this machine and let the server kill a random connection of another client
 * every few ms (at most max_pause_ms), until *stop. Counts the kills in *cuts. Returns 0, or 1
 * after a failure. */
int cut_connections(int port, int max_pause_ms, const atomic_int *stop, atomic_ullong *cuts);

#endif
