/* SPDX-License-Identifier: Apache-2.0
 *
 * peers.c - the other clients: knocking at their door, and noticing that they died.
 *
 * KNOCKING. First a bit is set in the other's slot (which of its buckets), then a datagram is sent
 * to its socket. The datagram only wakes it; so if its queue is full, nothing is lost: it will read
 * what is there and then takes the bits. The order on its side is the reverse: datagram, then bits.
 *
 * WATCHING. A FIFO that a client keeps open for writing as long as it lives, opened here for
 * reading: the kernel hangs up when its last writer is gone, even if the process was stopped, is in
 * another PID name space, or had forked children since. Unlike a connection to a listening socket
 * it needs nothing from the watched process, not even room in a queue, and any number may watch.
 * read() tells a FIFO without a writer (0) from one with (EAGAIN), so to begin to watch a dead
 * process is not to wait for ever.
 *
 * Watched processes are kept by (slot, gen) and counted; a few that nobody watches any more stay
 * open, because in a queue the same ones come round again.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "local.h"

#define IDLE 32

enum { LOOK, ANNOUNCE };

struct message {
    uint32_t kind, slot, gen;
};

/* ---- knocking -------------------------------------------------------------------------------- */

static int send_to(local *l, int fd, uint32_t slot, uint32_t kind)
{
    struct message message = {.kind = kind, .slot = l->slot, .gen = l->gen};
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    char name[16];

    local_slot_name(name, 'w', slot);
    if (strlen(l->sockets) + strlen(name) >= sizeof to.sun_path)
        return ENAMETOOLONG;
    strcpy(stpcpy(to.sun_path, l->sockets), name);
    return sendto(fd, &message, sizeof message, MSG_DONTWAIT | MSG_NOSIGNAL,
                  (struct sockaddr *)&to, sizeof to) < 0 ? errno : 0;
}

/* EAGAIN has two reasons: the other's queue is full, which is fine, or too much of what this socket
 * sent lies unread anywhere, which is not: a new socket has sent nothing yet. */
static void knock(local *l, uint32_t slot, uint32_t kind)
{
    int fd;

    if (send_to(l, l->wake, slot, kind) != EAGAIN)
        return;
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        send_to(l, fd, slot, kind);
        close(fd);
    }
}

static bool same_gen(const local *l, uint32_t slot, uint32_t gen)
{
    return slot < LOCAL_SLOTS && atomic_load(&l->map->slots[slot].gen) == gen;
}

void local_tell(void *store, uint16_t peer, uint32_t gen, uint32_t bucket, enum lockstate_why why)
{
    local *l = store;

    if (!same_gen(l, peer, gen))
        return;
    atomic_fetch_or(&l->map->slots[peer].hints,
                    why == LOCKSTATE_EVICTED ? DESK_EVICTED : DESK_BIT(bucket));
    knock(l, peer, LOOK);
}

void local_announce(void *store, uint16_t peer, uint32_t gen)
{
    local *l = store;

    if (same_gen(l, peer, gen) && (peer != l->slot || gen != l->gen))
        knock(l, peer, ANNOUNCE);
}

/* ---- watching -------------------------------------------------------------------------------- */

static struct local_peer **place(local *l, uint32_t slot, uint32_t gen)
{
    struct local_peer **at = &l->peers.table[slot % LOCAL_PEER_TABLE];

    while (*at && ((*at)->slot != slot || (*at)->gen != gen))
        at = &(*at)->next;
    return at;
}

static void free_peer(uv_handle_t *handle)
{
    free(handle->data);
}

static void stop_polling(struct local_peer *p)
{
    if (p->fd < 0)
        return;
    uv_poll_stop(&p->poll);
    close(p->fd);
    p->fd = -1;
}

static void drop_peer(struct local_peer **at)
{
    struct local_peer *p = *at;

    *at = p->next;
    stop_polling(p);
    uv_close((uv_handle_t *)&p->poll, free_peer);
}

/* Without a writer: the process is gone. */
static bool hung_up(int fd)
{
    char bytes[64];
    ssize_t n;

    do
        n = read(fd, bytes, sizeof bytes);
    while (n > 0 || (n < 0 && errno == EINTR));
    return n == 0;
}

static bool drop_lookout(local *l, uint32_t slot, uint32_t gen)
{
    for (size_t i = 0; i < LOCAL_LOOKOUTS; i++)
        if (l->peers.lookouts[i].used && l->peers.lookouts[i].slot == slot &&
            l->peers.lookouts[i].gen == gen) {
            l->peers.lookouts[i].used = false;
            local_unwatch(l, (uint16_t)slot, gen);
            return true;
        }
    return false;
}

static void died(uv_poll_t *poll, int status, int events)
{
    struct local_peer *p = poll->data;
    local *l = p->local;
    uint32_t slot = p->slot, gen = p->gen;

    (void)status;
    (void)events;
    if (!hung_up(p->fd))
        return;
    stop_polling(p);
    p->dead = true;
    if (drop_lookout(l, slot, gen)) /* it may have evicted us and not come to say so */
        desk_event(&l->desk, PAWL_EVENT_VERIFY);
    desk_look(&l->desk, UINT64_MAX, DESK_SEEN);
}

static int open_life(local *l, uint32_t slot)
{
    char name[16];

    local_slot_name(name, 'd', slot);
    return openat(l->dir, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
}

static struct local_peer *new_peer(local *l, uint32_t slot, uint32_t gen, int fd)
{
    struct local_peer *p = calloc(1, sizeof *p);

    if (!p || uv_poll_init(l->env->loop, &p->poll, fd)) {
        free(p);
        return NULL;
    }
    p->poll.data = p;
    p->local = l;
    p->slot = slot;
    p->gen = gen;
    p->fd = fd;
    l->env->loop_changed(l->env);
    if (uv_poll_start(&p->poll, UV_READABLE | UV_DISCONNECT, died)) {
        uv_close((uv_handle_t *)&p->poll, free_peer);
        return NULL;
    }
    return p;
}

/* Of those that nobody watches, drop the dead and half of the others. */
static void trim(local *l)
{
    for (size_t i = 0; i < LOCAL_PEER_TABLE; i++)
        for (struct local_peer **at = &l->peers.table[i]; *at;) {
            if ((*at)->refs || (!(*at)->dead && l->peers.idle <= IDLE / 2)) {
                at = &(*at)->next;
            } else {
                drop_peer(at);
                l->peers.idle--;
            }
        }
}

enum desk_watched local_watch(void *store, uint16_t peer, uint32_t gen)
{
    local *l = store;
    struct local_peer **at = place(l, peer, gen);
    int fd;

    if (*at && !(*at)->dead) {
        if (!(*at)->refs++)
            l->peers.idle--;
        return DESK_WATCHED;
    }
    if (*at || !same_gen(l, peer, gen))
        return DESK_DEAD;
    fd = open_life(l, peer);
    if (fd < 0)
        return errno == ENOENT && local_dead(l, peer, gen, true) ? DESK_DEAD : DESK_BLIND;
    if (l->peers.idle > IDLE) { /* now, not later: what is found dead below must be remembered */
        trim(l);
        at = place(l, peer, gen);
    }
    *at = new_peer(l, peer, gen, fd);
    if (!*at) {
        close(fd);
        return DESK_BLIND;
    }
    if (hung_up(fd) || !same_gen(l, peer, gen)) { /* in this order: see slots.c */
        stop_polling(*at);
        (*at)->dead = true;
        l->peers.idle++;
        return DESK_DEAD;
    }
    (*at)->refs = 1;
    return DESK_WATCHED;
}

void local_unwatch(void *store, uint16_t peer, uint32_t gen)
{
    local *l = store;
    struct local_peer *p = *place(l, peer, gen);

    if (!p || !p->refs || --p->refs)
        return;
    if (++l->peers.idle > IDLE)
        trim(l);
}

bool local_dead(void *store, uint16_t peer, uint32_t gen, bool thorough)
{
    local *l = store;
    struct local_peer *p;

    if (!same_gen(l, peer, gen))
        return true;
    p = *place(l, peer, gen);
    if (p && p->dead)
        return true;
    return thorough && local_slot_empty(l, peer);
}

/* ---- being knocked at ------------------------------------------------------------------------ */

static void look_out(local *l, uint32_t slot, uint32_t gen)
{
    size_t i = l->peers.next_lookout;
    enum desk_watched result;

    if (slot >= LOCAL_SLOTS)
        return;
    drop_lookout(l, slot, gen);
    result = local_watch(l, (uint16_t)slot, gen);
    if (result == DESK_DEAD) {
        desk_event(&l->desk, PAWL_EVENT_VERIFY);
        desk_look(&l->desk, UINT64_MAX, DESK_SEEN);
    }
    if (result != DESK_WATCHED)
        return;
    if (l->peers.lookouts[i].used)
        local_unwatch(l, (uint16_t)l->peers.lookouts[i].slot, l->peers.lookouts[i].gen);
    l->peers.lookouts[i].used = true;
    l->peers.lookouts[i].slot = slot;
    l->peers.lookouts[i].gen = gen;
    l->peers.next_lookout = (i + 1) % LOCAL_LOOKOUTS;
}

static void knocked(uv_poll_t *poll, int status, int events)
{
    local *l = poll->data;
    struct message messages[16];
    ssize_t n;

    (void)status;
    (void)events;
    for (int i = 0; i < 16; i++) {
        n = recv(l->wake, &messages[i], sizeof messages[i], MSG_DONTWAIT);
        if (n < 0)
            break;
        if (n != sizeof messages[i])
            continue;
        if (messages[i].kind == ANNOUNCE)
            look_out(l, messages[i].slot, messages[i].gen);
        else
            drop_lookout(l, messages[i].slot, messages[i].gen);
    }
    desk_look(&l->desk, atomic_exchange(&l->map->slots[l->slot].hints, 0), DESK_TOLD);
}

int local_peers_open(local *l, pawl_error *err)
{
    int result;

    if (!l->env->loop)
        return pawl_error_set(err, PAWL_ENOTSUP, "local: can't work without an event loop");
    result = uv_poll_init(l->env->loop, &l->poll, l->wake);
    if (result)
        return pawl_error_set(err, PAWL_EBACKEND, "local: can't watch a socket: %s",
                              uv_strerror(result));
    l->polling = true;
    l->poll.data = l;
    result = uv_poll_start(&l->poll, UV_READABLE, knocked);
    if (result)
        return pawl_error_set(err, PAWL_EBACKEND, "local: can't watch a socket: %s",
                              uv_strerror(result));
    return 0;
}

void local_peers_close(local *l)
{
    for (size_t i = 0; i < LOCAL_PEER_TABLE; i++)
        while (l->peers.table[i])
            drop_peer(&l->peers.table[i]);
    if (l->polling)
        uv_close((uv_handle_t *)&l->poll, NULL);
    l->polling = false;
}
