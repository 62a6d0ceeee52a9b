/* SPDX-License-Identifier: Apache-2.0
 *
 * received.h - how many bytes a connection has received.
 */
#ifndef PAWL_SQL_RECEIVED_H
#define PAWL_SQL_RECEIVED_H

#include <stdint.h>

/* The bytes that a TCP socket has received since it was connected; 0: a unix socket, or the kernel
 * is older than 4.1. */
int64_t sql_bytes_received(int fd);

#endif
