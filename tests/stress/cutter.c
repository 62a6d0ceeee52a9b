/* SPDX-License-Identifier: Apache-2.0
 *
 * cutter.c - kills random connections with CLIENT KILL, through a plain socket.
 *
 * The ids of connections count up, and the open connections are among the newest. A random id is
 * therefore drawn from CLIENT LIST, whose lines begin with "id=".
 */
#include "cutter.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "actors.h"

enum { MAX_IDS = 512 };

static FILE *open_port(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    FILE *file = NULL;

    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0)
        file = fdopen(fd, "r");
    if (!file && fd >= 0)
        close(fd);
    return file;
}

/* Send a command directly to the socket; the stream is for reading only. */
static void say(FILE *server, const char *words, long long id)
{
    if (id)
        dprintf(fileno(server), "%s %lld\r\n", words, id);
    else
        dprintf(fileno(server), "%s\r\n", words);
}

/* List the ids of the other connections. Returns their number, or -1. */
static int list_ids(FILE *server, long long mine, long long ids[MAX_IDS])
{
    char line[4096];
    long length;
    int n = 0;

    say(server, "CLIENT LIST", 0);
    if (!fgets(line, sizeof line, server) || line[0] != '$')
        return -1;
    for (length = atol(line + 1) + 2; length > 0; length -= (long)strlen(line)) {
        if (!fgets(line, sizeof line, server))
            return -1;
        if (!strncmp(line, "id=", 3) && n < MAX_IDS && atoll(line + 3) != mine)
            ids[n++] = atoll(line + 3);
    }
    return n;
}

int cut_connections(int port, int max_pause_ms, const atomic_int *stop, atomic_ullong *cuts)
{
    unsigned seed = (unsigned)getpid();
    FILE *server = open_port(port);
    long long ids[MAX_IDS], mine;
    char line[256];
    int n;

    if (!server)
        return 1;
    say(server, "CLIENT ID", 0);
    if (!fgets(line, sizeof line, server) || line[0] != ':')
        return 1;
    mine = atoll(line + 1);
    while (!atomic_load(stop)) {
        n = list_ids(server, mine, ids);
        if (n < 0)
            return 1;
        if (n > 0) {
            say(server, "CLIENT KILL ID", ids[rand_r(&seed) % n]);
            if (!fgets(line, sizeof line, server))
                return 1;
            atomic_fetch_add(cuts, line[0] == ':' && line[1] == '1');
        }
        pause_ms(rand_r(&seed) % (max_pause_ms + 1));
    }
    fclose(server);
    return 0;
}
