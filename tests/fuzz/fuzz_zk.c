/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_zk.c - the whole ZooKeeper engine, with servers that answer with any bytes: sessions, lists
 * of children, data of nodes, events, errors.
 *
 * A script (world.h) begins with a digit: 0 Curator's layout, 1 kazoo's. Then, besides ops:
 *
 *     xBYTES   the oldest request is answered with these bytes after a correct header
 *     eBYTE    the oldest request is refused; the error is minus BYTE
 *     wBYTES   an event: a byte for its type, and the path
 *     fBYTES   the server sends just these bytes
 *     @        all requests are answered as by a correct server, which has the nodes that it was
 *              asked to create. %: only the oldest request
 *     B T      a node of another client appears under the name, before or after ours
 *     K        all nodes are deleted
 *     W        an event for each of the last watched paths: deleted, or changed
 *     !        the server hangs up         +   100 ms pass       *   5 s pass
 *     ^0 ... ^9  cancel that op
 */
#include "registry.h"
#include "world.h"
#include "zk/zk.h"

enum { NODES = 64, HEARD_MAX = 1 << 16, HEADER = 20 };

/* The nodes of the correct server. */
static struct {
    char path[ZK_PATH_MAX];
    char data[256];
    size_t length;
} nodes[NODES];
static size_t nnodes;
static int32_t sequence;

static struct {
    char path[ZK_PATH_MAX];
    int happens;
} watched[8];
static size_t nwatched;

/* Requests that were not answered. */
static char heard[HEARD_MAX];
static size_t used;
static bool attached;
static net_stream *line;

void stream_opened(net_stream *s)
{
    line = s;
    used = 0;
    attached = false;
}

void stream_hears(net_stream *s, const void *data, size_t length)
{
    if (s != line || length > sizeof heard - used)
        return;
    memcpy(heard + used, data, length);
    used += length;
}

/* ---- answers of a correct server ------------------------------------------------------------- */

static void put_stat(jute_writer *w)
{
    jute_put_long(w, 100 + sequence);
    jute_put_long(w, 1);
    jute_put_long(w, 1000000);
    jute_put_long(w, 1000000);
    for (int i = 0; i < 3; i++)
        jute_put_int(w, 0);
    jute_put_long(w, 1);
    jute_put_int(w, 0);
    jute_put_int(w, 0);
    jute_put_long(w, 1);
}

static size_t find(jute_bytes path)
{
    size_t i = 0;

    while (i < nnodes && !zk_bytes_are(path, nodes[i].path))
        i++;
    return i;
}

static void add_node(const char *path, size_t length, jute_bytes data, bool numbered)
{
    if (nnodes == NODES || length + 12 > sizeof nodes[0].path)
        return;
    snprintf(nodes[nnodes].path, sizeof nodes[0].path, numbered ? "%.*s%010d" : "%.*s",
             (int)length, path, sequence);
    sequence += numbered;
    nodes[nnodes].length = data.length < sizeof nodes[0].data ? data.length : 0;
    if (nodes[nnodes].length)
        memcpy(nodes[nnodes].data, data.data, nodes[nnodes].length);
    nnodes++;
}

static bool has_parent(jute_bytes path)
{
    const char *slash = path.data ? memrchr(path.data, '/', path.length) : NULL;

    return slash && (slash == path.data ||
                     find((jute_bytes){path.data, (size_t)(slash - path.data)}) < nnodes);
}

static int create(jute_reader *r, jute_writer *w, bool stat)
{
    jute_bytes path = jute_get_bytes(r), data = jute_get_bytes(r);
    int flags;

    for (size_t n = jute_count(r, 4); n; n--) {
        jute_int(r);
        jute_get_bytes(r);
        jute_get_bytes(r);
    }
    flags = jute_int(r);
    if (!(flags & ZK_SEQUENTIAL) && find(path) < nnodes)
        return ZK_NODE_EXISTS;
    if (!has_parent(path))
        return ZK_NO_NODE;
    if (nnodes == NODES)
        return ZK_NO_AUTH;
    add_node(path.data, path.length, data, flags & ZK_SEQUENTIAL);
    jute_put_text(w, nodes[nnodes - 1].path);
    if (stat)
        put_stat(w);
    return 0;
}

static int remove_node(jute_reader *r)
{
    size_t i = find(jute_get_bytes(r));

    jute_int(r);
    if (i == nnodes)
        return ZK_NO_NODE;
    nodes[i] = nodes[--nnodes];
    return 0;
}

static int change(jute_reader *r, jute_writer *w)
{
    size_t i = find(jute_get_bytes(r));
    jute_bytes data = jute_get_bytes(r);

    jute_int(r);
    if (i == nnodes)
        return ZK_NO_NODE;
    nodes[i].length = data.length < sizeof nodes[0].data ? data.length : 0;
    if (nodes[i].length)
        memcpy(nodes[i].data, data.data, nodes[i].length);
    put_stat(w);
    return 0;
}

static const char *child_of(const char *path, jute_bytes parent)
{
    size_t n = parent.length == 1 ? 0 : parent.length;
    const char *rest = path + n + 1;

    if (strncmp(path, parent.data, n) || path[n] != '/' || !*rest || strchr(rest, '/'))
        return NULL;
    return rest;
}

static void note_watch(jute_reader *r, jute_bytes path, int happens)
{
    size_t i = nwatched % 8;

    if (!jute_bool(r) || path.length >= sizeof watched[0].path)
        return;
    memcpy(watched[i].path, path.data, path.length);
    watched[i].path[path.length] = 0;
    watched[i].happens = happens;
    nwatched++;
}

static int list(jute_reader *r, jute_writer *w)
{
    jute_bytes parent = jute_get_bytes(r);
    int32_t n = 0;

    note_watch(r, parent, ZK_CHILDREN_CHANGED);
    for (size_t i = 0; i < nnodes; i++)
        n += child_of(nodes[i].path, parent) != NULL;
    if (!n && find(parent) == nnodes)
        return ZK_NO_NODE;
    jute_put_int(w, n);
    for (size_t i = 0; i < nnodes; i++)
        if (child_of(nodes[i].path, parent))
            jute_put_text(w, child_of(nodes[i].path, parent));
    put_stat(w);
    return 0;
}

static int zk_inspection(jute_reader *r, jute_writer *w, bool data)
{
    jute_bytes path = jute_get_bytes(r);
    size_t i = find(path);

    note_watch(r, path, data ? ZK_DATA_CHANGED : ZK_DELETED);
    if (i == nnodes)
        return ZK_NO_NODE;
    if (data)
        jute_put_bytes(w, nodes[i].data, nodes[i].length);
    put_stat(w);
    return 0;
}

static int carry_out(int opcode, jute_reader *r, jute_writer *w)
{
    switch (opcode) {
    case ZK_CREATE:
    case ZK_CREATE2:
    case ZK_CREATE_CONTAINER:
        return create(r, w, opcode != ZK_CREATE);
    case ZK_DELETE:
        return remove_node(r);
    case ZK_SET:
        return change(r, w);
    case ZK_CHILDREN:
        return list(r, w);
    case ZK_EXISTS:
    case ZK_GET:
        return zk_inspection(r, w, opcode == ZK_GET);
    case ZK_CHECK:
        return find(jute_get_bytes(r)) == nnodes ? ZK_NO_NODE : (jute_int(r), 0);
    case ZK_SYNC:
        jute_put_text(w, "/");
        return 0;
    default:
        return 0;
    }
}

/* A multi. Unlike on a real server, some parts may succeed if others fail; but the order is
 * right. */
static void several(jute_reader *r, jute_writer *w)
{
    for (int type; (type = jute_int(r)) != -1 && !r->bad;) {
        jute_bool(r);
        jute_int(r);
        jute_put_int(w, type);
        jute_put_bool(w, false);
        jute_put_int(w, 0);
        carry_out(type, r, w);
    }
    jute_put_int(w, -1);
    jute_put_bool(w, true);
    jute_put_int(w, -1);
}

/* ---- answers --------------------------------------------------------------------------------- */

static void send_message(kit_buf *out)
{
    if (stream_is_open(line))
        stream_says(line, out->data + out->begin, kit_buf_length(out));
    kit_buf_free(out);
}

static void answer_attach(void)
{
    kit_buf out = {0};
    jute_writer w = jute_begin(&out);

    jute_put_int(&w, 0);
    jute_put_int(&w, 30000);
    jute_put_long(&w, 1);
    jute_put_bytes(&w, "0123456789abcdef", 16);
    jute_put_bool(&w, false);
    DEMAND(jute_end(&w));
    attached = true;
    send_message(&out);
}

/* Take the oldest request off the list. False: there is none. */
static bool next_request(jute_reader *r, kit_buf *kept)
{
    size_t size;

    if (jute_frame(heard, used, r, &size) != JUTE_FRAME)
        return false;
    DEMAND(!kit_buf_reserve(kept, size));
    memcpy(kept->data, heard, size);
    kept->end = size;
    DEMAND(jute_frame(kept->data, size, r, &size) == JUTE_FRAME);
    memmove(heard, heard + size, used - size);
    used -= size;
    return true;
}

static void put_header(jute_writer *w, int32_t xid, int error)
{
    jute_put_int(w, xid);
    jute_put_long(w, 1);
    jute_put_int(w, error);
}

/* Answer a request: as a correct server (NULL), with this error, or with these bytes. */
static bool answer(int error, const char *bytes, size_t length)
{
    kit_buf kept = {0}, out = {0};
    jute_reader r;
    jute_writer w;
    int32_t xid;
    int opcode;

    if (!next_request(&r, &kept))
        return false;
    if (!attached && !error && !bytes) {
        answer_attach();
        kit_buf_free(&kept);
        return true;
    }
    attached = true;
    xid = jute_int(&r);
    opcode = jute_int(&r);
    w = jute_begin(&out);
    put_header(&w, xid, error);
    if (bytes) /* unchanged */
        for (size_t i = 0; i < length; i++)
            jute_put_bool(&w, false);
    else if (!error && opcode == ZK_MULTI)
        several(&r, &w);
    else if (!error)
        error = carry_out(opcode, &r, &w);
    DEMAND(jute_end(&w));
    if (bytes && length)
        memcpy(out.data + out.end - length, bytes, length);
    if (error && !bytes) {
        kit_buf_free(&out);
        w = jute_begin(&out);
        put_header(&w, xid, error);
        DEMAND(jute_end(&w));
    }
    send_message(&out);
    kit_buf_free(&kept);
    return true;
}

static void event(int happened, const char *path, size_t length)
{
    kit_buf out = {0};
    jute_writer w = jute_begin(&out);

    put_header(&w, -1, 0);
    jute_put_int(&w, happened);
    jute_put_int(&w, 3);
    jute_put_bytes(&w, path, length);
    DEMAND(jute_end(&w));
    send_message(&out);
}

static void fire_watches(void)
{
    size_t n = nwatched < 8 ? nwatched : 8;

    nwatched = 0;
    for (size_t i = 0; i < n; i++)
        event(watched[i].happens, watched[i].path, strlen(watched[i].path));
}

static void stranger(bool before)
{
    char path[64];
    int32_t own = sequence;

    sequence = before ? 0 : sequence;
    snprintf(path, sizeof path, "/p/a/_c_0-lock-");
    add_node(path, strlen(path), (jute_bytes){"x", 1}, true);
    sequence = before ? own + 1 : sequence;
}

/* ---- the script ------------------------------------------------------------------------------ */

static void serve_all(world *w)
{
    for (int i = 0; i < 200 && answer(0, NULL, 0); i++)
        world_turn(w);
}

static void take(world *w, const world_step *step)
{
    char letter = step->letter;

    if (letter == 'x' || letter == '%')
        answer(0, letter == 'x' ? step->text : NULL, step->length);
    else if (letter == 'e' && step->length)
        answer(-(int)(unsigned char)step->text[0], NULL, 0);
    else if (letter == 'w' && step->length)
        event(step->text[0] - '0', step->text + 1, step->length - 1);
    else if (letter == 'W')
        fire_watches();
    else if (letter == 'f' && stream_is_open(line))
        stream_says(line, step->text, step->length);
    else if (letter == '@')
        serve_all(w);
    else if (letter == 'B' || letter == 'T')
        stranger(letter == 'B');
    else if (letter == 'K')
        nnodes = 0;
    else if (letter == '!' && stream_is_open(line))
        stream_hangs_up(line);
    else
        world_do(w, step);
    world_turn(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const urls[] = {"zk://h:1,h2:2/p", "zk://u:w@h/p?flavor=kazoo"};
    static world w;
    world_step step;
    size_t at = 1, n = size ? (uint8_t)(data[0] - '0') % 2 : 0;

    if (!size)
        return 0;
    nnodes = used = nwatched = 0;
    sequence = 0;
    line = NULL;
    world_turned = streams_turn;
    DEMAND(world_open(&w, &pawl_engine_zk, urls[n]));
    for (int i = 0; i < 64 && world_next(data, size, &at, &step); i++)
        take(&w, &step);
    world_close(&w);
    streams_reset();
    return 0;
}
