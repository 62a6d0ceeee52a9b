/* SPDX-License-Identifier: Apache-2.0
 *
 * leftovers.c - deletes nodes that the session has on the server, but that no waiter knows.
 *
 * An ensemble that was set back to an older snapshot has nodes again which this client had deleted.
 * The client keeps the session alive, so such a leftover would block its lock for as long as the
 * client lives. Therefore, whenever the client resumes a session, it asks the server for all nodes
 * of the session (getEphemerals), and deletes those of acquires that have ended.
 *
 *   - The question is the first request on the new connection, so the list shows no node that is
 *     created later. A node in the list belongs to a waiter that exists, or to an acquire that has
 *     ended: a waiter exists before its node, and ends after its node.
 *   - The node's name has the sequence number of the acquire, also if the answer to the create was
 *     lost. A sequence number is used once, so a node without a waiter is not needed any more.
 *   - A delete that is lost with its connection is repeated: the next connection asks again.
 *
 * Servers before ZooKeeper 3.6 answer the question with UNIMPLEMENTED and close the connection.
 * After that, after a malformed answer, or if two connections in a row were lost before the answer,
 * the client stops asking.
 */
#include <stdlib.h>

#include "waiter.h"

#define LOST_MAX 2 /* connections */

/* The sequence number in the name of a node that this client created; 0: not such a node. */
static uint64_t sequence_of(zk *z, const char *path)
{
    const char *slash = strrchr(path, '/'), *node = slash ? slash + 1 : path;
    char digits[33], client[17];
    size_t n = 0;

    if (!strncmp(node, "_c_", 3))
        node += 3;
    while (n < 32 && *node && (*node == '-' || strchr("0123456789abcdef", *node))) {
        if (*node != '-')
            digits[n++] = *node;
        node++;
    }
    digits[n] = 0;
    snprintf(client, sizeof client, "%016llx", (unsigned long long)z->env->client_id);
    return n == 32 && !strncmp(digits, client, 16) ? strtoull(digits + 20, NULL, 16) : 0;
}

/* Keep the paths of leftovers in `paths`, each with its NUL, until the deletes are sent. */
static bool listed(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    zk *z = task->zk;
    zk_leftovers *left = &z->leftovers;
    size_t n;

    (void)tag;
    left->lost = error == ZK_LOST ? left->lost + 1 : 0;
    left->unknown |= error == ZK_UNIMPLEMENTED || left->lost == LOST_MAX;
    if (error)
        return true;
    n = jute_count(body, 4);
    for (size_t i = 0; i < n; i++) {
        jute_bytes path = jute_get_bytes(body);
        char text[ZK_PATH_MAX];
        uint64_t seq;

        if (path.length >= sizeof text)
            continue;
        memcpy(text, path.data, path.length);
        text[path.length] = 0;
        seq = sequence_of(z, text);
        if (!seq || zk_waiter_find(z, seq) || kit_buf_reserve(&left->paths, path.length + 1))
            continue;
        memcpy(left->paths.data + left->paths.end, text, path.length + 1);
        left->paths.end += path.length + 1;
    }
    if (jute_at_end(body))
        return true;
    left->unknown = true;
    kit_buf_free(&left->paths);
    return false;
}

static void go(zk_task *task)
{
    (void)task;
}

/* An answered delete calls this function again, with no paths. */
static void next(zk_task *task)
{
    kit_buf *paths = &task->zk->leftovers.paths;

    while (kit_buf_length(paths)) {
        const char *path = paths->data + paths->begin;

        zk_ask_delete(task, path, -1, NULL, 0);
        kit_buf_take(paths, strlen(path) + 1);
    }
}

static void refused(zk_task *task, int code, const char *words)
{
    (void)task;
    (void)code;
    (void)words;
}

static const zk_task_type type = {.go = go, .next = next, .refused = refused};

void zk_leftovers_open(zk *z)
{
    zk_task_begin(&z->leftovers.task, z, &type);
}

void zk_leftovers_ask(zk *z)
{
    zk_task *task = &z->leftovers.task;
    jute_writer w;

    if (z->leftovers.unknown)
        return;
    task->lost = false;
    w = zk_request(z, ZK_EPHEMERALS);
    jute_put_text(&w, "/");
    zk_request_end(task, &w, listed, 0);
}

void zk_leftovers_close(zk *z)
{
    kit_buf_free(&z->leftovers.paths);
}
