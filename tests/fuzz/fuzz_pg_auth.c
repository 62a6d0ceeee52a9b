/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_pg_auth.c - any bytes as the messages of a PostgreSQL server before the end of the
 * authentication, through the relay that protects the password (postgres/relay.c).
 *
 * Rules: libpq gets a prefix of the server's bytes, unchanged, and never a message that asks for
 * the password in clear. With 'T' as the first byte libpq has asked for TLS before.
 */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "postgres/postgres.h"

/* Does data[0..length), which consists of whole messages, ask for the password in clear? The first
 * byte may be the answer to the request for TLS. */
static bool asks_clear(const unsigned char *data, size_t length, bool tls)
{
    size_t at = tls ? 1 : 0, size;

    for (; at + 5 <= length; at += size) {
        size = 1 + ((size_t)data[at + 1] << 24 | (size_t)data[at + 2] << 16 |
                    (size_t)data[at + 3] << 8 | data[at + 4]);
        if (size < 5 || size > length - at)
            return false;
        if (data[at] == 'R' && size >= 9 && !data[at + 5] && !data[at + 6] && !data[at + 7])
            if (data[at + 8] == 3)
                return true;
    }
    return false;
}

static void run(pg_relay *r, int libpq, const uint8_t *data, size_t size, bool tls)
{
    unsigned char got[1 << 16];
    size_t used = 0;
    ssize_t n;

    for (int i = 0; i < 1000 && !pg_relay_over(r); i++) {
        enum pg_relay_result result = pg_relay_in(r);

        while ((n = recv(libpq, got + used, sizeof got - used, MSG_DONTWAIT)) > 0)
            used += (size_t)n;
        if (result != PG_RELAY_FED || n == 0)
            break;
    }
    DEMAND(used <= size && !memcmp(got, data, used));
    if (!(tls && used && got[0] == 'S'))
        DEMAND(!asks_clear(got, used, tls));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool tls = size && data[0] == 'T';
    int pair[2];
    pg_relay *r;

    if (!size || size > 32768)
        return 0;
    DEMAND(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair));
    r = pg_relay_new(pair[0]);
    DEMAND(r && pg_relay_is(r, pair[0]));
    if (tls)
        DEMAND(send(pair[0], "\0\0\0\x08\x04\xd2\x16\x2f", 8, 0) == 8);
    DEMAND(pg_relay_out(r));
    DEMAND(size == 1 || send(pair[1], data + 1, size - 1, 0) == (ssize_t)size - 1);
    shutdown(pair[1], SHUT_WR);
    run(r, pair[0], data + 1, size - 1, tls);
    if (pg_relay_over(r))
        DEMAND(pg_relay_give_back(r, pair[0]) && !pg_relay_is(r, pair[0]));
    pg_relay_free(r);
    close(pair[0]);
    close(pair[1]);
    return 0;
}
