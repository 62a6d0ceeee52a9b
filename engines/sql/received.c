/* SPDX-License-Identifier: Apache-2.0
 *
 * received.c - how many bytes a connection has received. The kernel's header for struct tcp_info
 * and libuv's headers exclude each other, so this function has a file of its own.
 */
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <linux/tcp.h>

#include "received.h"

int64_t sql_bytes_received(int fd)
{
    struct tcp_info info;
    socklen_t size = sizeof info;

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) ||
        size < offsetof(struct tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received)
        return 0;
    return (int64_t)info.tcpi_bytes_received;
}
