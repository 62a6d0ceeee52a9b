/* SPDX-License-Identifier: Apache-2.0
 *
 * peers.c - other clients: sending notices to them, and detecting their death.
 *
 * NOTICES. A datagram to the other client's socket says which bucket has changed, which owner is
 * meant, and which tokens were drawn (shelf_engine.h). If the queue of the socket is full, the
 * sender sets a bit for the bucket in the other client's slot and sends the datagram again. If the
 * queue is still full, the other client will read the queue and the bits after that. A datagram
 * without an owner, and a bit, make the other client check all its waiters in the bucket.
 *
 * WATCHING. A client keeps its FIFO open for writing as long as it lives. Other clients open the
 * FIFO for reading: the kernel hangs up when the last writer is gone, even if the process was
 * stopped, is in another PID name space, or had forked children. Unlike a connection to a listening
 * socket, the FIFO needs nothing from the watched process, not even room in a queue, and any number
 * of clients may watch. read() distinguishes a FIFO without a writer (0) from a FIFO with a writer
 * (EAGAIN), so a watch on a process that is already dead ends at once.
 *
 * Watched processes are identified by (slot, gen) and counted. A few FIFOs without watchers stay
 * open, because the waiters of a queue watch the same processes repeatedly.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "local.h"

#define IDLE 32

enum { LOOK, ANNOUNCE };

struct message {
    uint32_t kind, slot, gen, unused;
    struct shelf_told told;
};

/* ---- knocking -------------------------------------------------------------------------------- */

/* Open the socket of another client safely: in a group's folder a member may have replaced the
 * socket by a link. */
static int open_door(local *l, const char *name, char path[48])
{
    struct stat st;
    int fd = openat(l->dir, name, O_PATH | O_CLOEXEC | O_NOFOLLOW);

    if (fd >= 0 && (fstat(fd, &st) || !S_ISSOCK(st.st_mode))) {
        close(fd);
        fd = -1;
    }
    snprintf(path, 48, "/proc/self/fd/%d", fd);
    return fd;
}

static int send_to(local *l, int fd, uint32_t slot, const struct message *message)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    char name[16], path[48];
    int door = -1, result;

    local_slot_name(name, 'w', slot);
    if (l->shared) {
        door = open_door(l, name, path);
        if (door < 0)
            return ENOENT;
        strcpy(to.sun_path, path);
    } else {
        strcpy(stpcpy(to.sun_path, l->sockets), name);
    }
    result = sendto(fd, message, sizeof *message, MSG_DONTWAIT | MSG_NOSIGNAL,
                    (struct sockaddr *)&to, sizeof to) < 0 ? errno : 0;
    if (door >= 0)
        close(door);
    return result;
}

/* EAGAIN has two reasons: the queue of the receiver is full, or too many datagrams of this socket
 * are unread anywhere. A new socket has sent nothing yet. */
static int knock(local *l, uint32_t slot, const struct message *message)
{
    int fd, error = send_to(l, l->wake, slot, message);

    if (error != EAGAIN)
        return error;
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error;
    error = send_to(l, fd, slot, message);
    close(fd);
    return error;
}

static bool same_gen(local *l, uint32_t slot, uint32_t gen)
{
    return slot < LOCAL_SLOTS && (uint32_t)local_load(l, LOCAL_AT_SLOT(slot, gen)) == gen;
}

/* Has the client left the slot? If the word can't be read, that is not known: a client that may be
 * alive must not count as dead. */
static bool other_gen(local *l, uint32_t slot, uint32_t gen)
{
    return !same_gen(l, slot, gen) && !l->trouble;
}

/* This client can't reach a live client: tell all clients that watch this process to check the
 * table by themselves. Many bytes are written, because a client that checks whether this process
 * lives may read one. */
static void fall_mute(local *l, uint32_t slot, uint32_t gen)
{
    static const char bytes[512];

    if (!l->mute && same_gen(l, slot, gen) && !local_slot_empty(l, slot))
        l->mute = write(l->life, bytes, sizeof bytes) > 0;
}

/* Record this client as the breaker, in the slot of the client whose lock was broken. */
static void note_breaker(local *l, uint32_t slot)
{
    uint64_t me = (uint64_t)(l->slot + 1) << 32 | l->gen;
    uint64_t before = local_exchange(l, LOCAL_AT_SLOT(slot, breaker), me);

    if (before && before != me)
        (void)local_exchange(l, LOCAL_AT_SLOT(slot, breaker), UINT64_MAX);
}

/* Find the client that broke a lock of ours. If the breaker has left since (its gen is one more),
 * its name is still in its slot, until another client takes the slot. */
void local_breaker(void *store, char by[PAWL_BY_MAX])
{
    local *l = store;
    uint64_t word = local_exchange(l, LOCAL_AT_SLOT(l->slot, breaker), 0);
    uint32_t slot = (uint32_t)(word >> 32) - 1, gen = (uint32_t)word, now, pid;
    char program[33], label[65];

    by[0] = 0;
    if (!word || slot >= LOCAL_SLOTS)
        return;
    pid = (uint32_t)local_load(l, LOCAL_AT_SLOT(slot, pid));
    local_text_load(l, program, LOCAL_AT_SLOT(slot, program), 4);
    local_text_load(l, label, LOCAL_AT_SLOT(slot, label), 8);
    now = (uint32_t)local_load(l, LOCAL_AT_SLOT(slot, gen));
    if (now == gen || now == gen + 1)
        pawl_client_info_text(by, pid, program, label, l->env->host);
}

void local_tell(void *store, const struct shelf_peer *to, const struct shelf_told *what)
{
    local *l = store;
    struct message message = {.kind = LOOK, .slot = l->slot, .gen = l->gen, .told = *what};
    int error;

    if (!same_gen(l, to->peer, to->gen))
        return;
    if (to->why == LOCKSTATE_EVICTED) {
        note_breaker(l, to->peer);
        (void)local_or(l, LOCAL_AT_SLOT(to->peer, hints), SHELF_EVICTED);
    }
    error = knock(l, to->peer, &message);
    if (error == EAGAIN) { /* full: the receiver reads the queue, and then the bits */
        (void)local_or(l, LOCAL_AT_SLOT(to->peer, hints), SHELF_BIT(what->bucket));
        error = knock(l, to->peer, &message);
    }
    if (error && error != EAGAIN) {
        (void)local_or(l, LOCAL_AT_SLOT(to->peer, hints), SHELF_BIT(what->bucket));
        fall_mute(l, to->peer, to->gen);
    }
}

void local_announce(void *store, uint16_t peer, uint32_t gen)
{
    local *l = store;

    struct message message = {.kind = ANNOUNCE, .slot = l->slot, .gen = l->gen};

    if (same_gen(l, peer, gen) && (peer != l->slot || gen != l->gen))
        (void)knock(l, peer, &message);
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
    struct local_peer *p = handle->data;

    p->closed = true;
    if (p->dropped)
        free(p);
}

/* Stop the loop's watch before closing the descriptor: another file may get the same number at
 * once, and libuv would then stop watching that file. */
static void stop_polling(struct local_peer *p)
{
    if (p->fd < 0)
        return;
    uv_close((uv_handle_t *)&p->poll, free_peer);
    close(p->fd);
    p->fd = -1;
}

static void drop_peer(struct local_peer **at)
{
    struct local_peer *p = *at;

    *at = p->next;
    stop_polling(p);
    p->dropped = true;
    if (p->closed)
        free(p);
}

/* Has the process reported that it is mute? The bytes stay in the FIFO, so that all clients see
 * them. */
static bool speaks(int fd)
{
    int n = 0;

    return !ioctl(fd, FIONREAD, &n) && n > 0;
}

/* Does the FIFO have no writer? Then the process is gone. */
static bool hung_up(int fd)
{
    char byte;
    ssize_t n;

    do
        n = read(fd, &byte, 1);
    while (n < 0 && errno == EINTR);
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
    local_call_begin(l);
    if (p->mute || speaks(p->fd)) {
        p->mute = true; /* from now on the table is checked by a timer */
        stop_polling(p);
        shelf_check(&l->engine, UINT64_MAX, SHELF_SEEN);
        return;
    }
    if (!hung_up(p->fd))
        return;
    stop_polling(p);
    p->dead = true;
    if (drop_lookout(l, slot, gen)) /* may have evicted us and died before its notice */
        pawl_events_report(&l->engine.events, PAWL_EVENT_VERIFY, 0);
    shelf_check(&l->engine, UINT64_MAX, SHELF_SEEN);
}

static int open_life(local *l, uint32_t slot)
{
    char name[16];
    struct stat st;
    int fd;

    local_slot_name(name, 'd', slot);
    fd = openat(l->dir, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 && (fstat(fd, &st) || !S_ISFIFO(st.st_mode))) { /* created by another user */
        close(fd);
        errno = EPERM;
        return -1;
    }
    return fd;
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
        p->dropped = true;
        uv_close((uv_handle_t *)&p->poll, free_peer);
        return NULL;
    }
    return p;
}

/* Drop the dead processes without watchers, and half of the others without watchers. */
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

enum shelf_watched local_watch(void *store, uint16_t peer, uint32_t gen)
{
    local *l = store;
    struct local_peer **at = place(l, peer, gen);
    int fd;

    if (*at && (*at)->mute)
        return local_dead(l, peer, gen, true) ? SHELF_DEAD : SHELF_BLIND;
    if (*at && !(*at)->dead) {
        if (!(*at)->refs++)
            l->peers.idle--;
        return SHELF_WATCHED;
    }
    if (*at || other_gen(l, peer, gen))
        return SHELF_DEAD;
    fd = open_life(l, peer);
    if (fd < 0)
        return local_dead(l, peer, gen, true) ? SHELF_DEAD : SHELF_BLIND;
    if (l->peers.idle > IDLE) { /* first: a process that is found dead below must be remembered */
        trim(l);
        at = place(l, peer, gen);
    }
    *at = new_peer(l, peer, gen, fd);
    if (!*at) {
        close(fd);
        return SHELF_BLIND;
    }
    if (speaks(fd)) {
        (*at)->mute = true;
        stop_polling(*at);
        l->peers.idle++;
        return local_dead(l, peer, gen, true) ? SHELF_DEAD : SHELF_BLIND;
    }
    if (hung_up(fd) || other_gen(l, peer, gen)) { /* in this order: see slots.c */
        stop_polling(*at);
        (*at)->dead = true;
        l->peers.idle++;
        return SHELF_DEAD;
    }
    (*at)->refs = 1;
    return SHELF_WATCHED;
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

    if (other_gen(l, peer, gen))
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
    enum shelf_watched result;

    if (slot >= LOCAL_SLOTS)
        return;
    drop_lookout(l, slot, gen);
    result = local_watch(l, (uint16_t)slot, gen);
    if (result == SHELF_DEAD) {
        pawl_events_report(&l->engine.events, PAWL_EVENT_VERIFY, 0);
        shelf_check(&l->engine, UINT64_MAX, SHELF_SEEN);
    }
    if (result != SHELF_WATCHED)
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
    uint64_t hints = 0;
    ssize_t n;

    (void)status;
    (void)events;
    local_call_begin(l);
    for (int i = 0; i < 16; i++) {
        n = recv(l->wake, &messages[i], sizeof messages[i], MSG_DONTWAIT);
        if (n < 0)
            break;
        if (n != sizeof messages[i])
            continue;
        if (messages[i].kind == ANNOUNCE) {
            look_out(l, messages[i].slot, messages[i].gen);
            continue;
        }
        drop_lookout(l, messages[i].slot, messages[i].gen);
        shelf_told(&l->engine, &messages[i].told);
    }
    if (local_load(l, LOCAL_AT_SLOT(l->slot, hints)))
        hints = local_exchange(l, LOCAL_AT_SLOT(l->slot, hints), 0);
    shelf_check(&l->engine, hints, SHELF_TOLD);
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
