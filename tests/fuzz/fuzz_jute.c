/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_jute.c - any bytes as ZooKeeper's answers: messages, and the records in each message.
 *
 * Rules: nothing is read outside the message; a reader that has found an error stays in error and
 * returns nothing; fields that were read and written again are the same bytes. For each text in a
 * message: the name of a node is parsed or refused, a name decodes only if it encodes to the same
 * text, and the data of a node give strings that are terminated.
 */
#include "fuzz.h"
#include "zk/zk.h"

static void inside(jute_bytes b, const jute_reader *whole)
{
    const char *begin = (const char *)whole->at, *end = (const char *)whole->end;

    DEMAND(!b.length || (b.data >= begin && b.data + b.length <= end));
}

static void use_text(jute_bytes text)
{
    char name[PAWL_NAME_MAX + 1], again[3 * PAWL_NAME_MAX + 1];
    zk_child child = zk_child_read(text.length % 2, text);
    zk_client_info client;

    DEMAND(child.sort <= ZK_OTHER);
    for (int root = 0; root < 2; root++)
        if (text.length && zk_decode(name, text.data, text.length, root)) {
            zk_encode(again, name, root);
            DEMAND(strlen(again) == text.length && !memcmp(again, text.data, text.length));
            DEMAND(!strchr(again, '/') && strcmp(again, ".") && strcmp(again, ".."));
        }
    DEMAND(zk_count_read(text, "pawl permits=") >= -1);
    zk_client_info_read(&client, text);
    DEMAND(client.pid >= 0 && client.lease_ms >= -1);
    DEMAND(client.want >= 0 && client.want <= UINT32_MAX);
    DEMAND(strlen(client.host) < sizeof client.host && strlen(client.label) < sizeof client.label);
}

/* A list of texts and a Stat, as in an answer with children. Written again, the bytes are equal. */
static void use_list(jute_reader r)
{
    jute_reader whole = r;
    kit_buf out = {0};
    jute_writer w = jute_begin(&out);
    size_t n = jute_count(&r, 4);
    bool null = !r.bad && n == 0;

    jute_put_int(&w, (int32_t)n);
    for (size_t i = 0; i < n; i++) {
        jute_bytes text = jute_get_bytes(&r);

        inside(text, &whole);
        use_text(text);
        null |= !text.length; /* may have been a null, which is written as empty */
        jute_put_bytes(&w, text.data ? text.data : "", text.length);
    }
    DEMAND(jute_end(&w));
    if (!r.bad && !null) {
        DEMAND(kit_buf_length(&out) - 4 == (size_t)(r.at - whole.at));
        DEMAND(!memcmp(out.data + 4, whole.at, kit_buf_length(&out) - 4));
    }
    jute_stat(&r);
    DEMAND(r.at <= r.end && (!r.bad || !jute_at_end(&r)));
    kit_buf_free(&out);
}

/* A list of results, as in the answer to a multi. */
static void use_multi(jute_reader r)
{
    int error = 0, type;

    while ((type = jute_multi(&r, &error)))
        if (type == ZK_CREATE)
            jute_get_bytes(&r);
    DEMAND(error <= 0);
}

static void use_rest(jute_reader r)
{
    jute_reader whole = r;

    while (!r.bad && r.at < r.end) {
        jute_bytes text = jute_get_bytes(&r);

        inside(text, &whole);
        jute_bool(&r);
        jute_long(&r);
    }
    if (r.bad) {
        DEMAND(!jute_int(&r) && !jute_long(&r) && !jute_bool(&r) && !jute_get_bytes(&r).length);
        DEMAND(!jute_count(&r, 1) && r.bad);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *at = (const char *)data;
    jute_reader body;
    size_t left = size, n;

    while (jute_frame(at, left, &body, &n) == JUTE_FRAME) {
        DEMAND(n >= 4 && n <= left);
        use_list(body);
        use_multi(body);
        use_rest(body);
        at += n;
        left -= n;
    }
    return 0;
}
