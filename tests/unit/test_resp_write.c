/* SPDX-License-Identifier: Apache-2.0
 *
 * test_resp_write.c - the rest of the wire format of Redis: writing commands, byte by byte and
 * without memory; reading values from nodes; and random replies, which a second reader
 * (resp_reference.h) must print the same.
 */
#include <locale.h>
#include <math.h>
#include <stdio.h>

#include "check.h"
#include "resp_reference.h"
#include "test_resp.h"

static void holds(const resp_buf *buf, const char *bytes, size_t length)
{
    CHECK_EQ(kit_buf_length(buf), length);
    CHECK(!memcmp(buf->data + buf->begin, bytes, length));
}

#define HOLDS(buf, literal) holds(buf, literal, sizeof(literal) - 1)

/* ---- Commands -------------------------------------------------------------------------------- */

CASE("a command is an array of bulks")
{
    resp_buf out = {0};
    resp_command c = resp_begin(&out, 4);

    resp_add_text(&c, "SET");
    resp_add(&c, "a\0\r\nb", 5);
    resp_add(&c, NULL, 0);
    resp_add_int(&c, -30000);
    CHECK_OK(resp_end(&c));
    HOLDS(&out, "*4\r\n$3\r\nSET\r\n$5\r\na\0\r\nb\r\n$0\r\n\r\n$6\r\n-30000\r\n");
    kit_buf_free(&out);
    kit_buf_free(&out);
}

CASE("numbers of all lengths, to the ends")
{
    resp_buf out = {0};
    resp_command c = resp_begin(&out, 6);

    resp_add_int(&c, INT64_MIN);
    resp_add_int(&c, INT64_MAX);
    resp_add_int(&c, 0);
    resp_add_uint(&c, UINT64_MAX);
    resp_add_uint(&c, 0);
    resp_add_uint(&c, 10);
    CHECK_OK(resp_end(&c));
    HOLDS(&out, "*6\r\n$20\r\n-9223372036854775808\r\n$19\r\n9223372036854775807\r\n$1\r\n0\r\n"
                "$20\r\n18446744073709551615\r\n$1\r\n0\r\n$2\r\n10\r\n");
    kit_buf_free(&out);
}

CASE("scripts, by their hash and whole")
{
    static const char sha[] = "0123456789012345678901234567890123456789";
    resp_buf out = {0};
    resp_command c = resp_begin_evalsha(&out, sha, 1, 1);

    resp_add_text(&c, "key");
    resp_add_uint(&c, 7);
    CHECK_OK(resp_end(&c));
    HOLDS(&out, "*5\r\n$7\r\nEVALSHA\r\n$40\r\n0123456789012345678901234567890123456789\r\n"
                "$1\r\n1\r\n$3\r\nkey\r\n$1\r\n7\r\n");
    kit_buf_take(&out, kit_buf_length(&out));
    c = resp_begin_eval(&out, "return 1", 8, 0, 0);
    CHECK_OK(resp_end(&c));
    HOLDS(&out, "*3\r\n$4\r\nEVAL\r\n$8\r\nreturn 1\r\n$1\r\n0\r\n");
    c = resp_begin_eval(&out, "return 1", 8, SIZE_MAX, 1);
    CHECK_CODE(resp_end(&c), PAWL_EINVAL);
    HOLDS(&out, "*3\r\n$4\r\nEVAL\r\n$8\r\nreturn 1\r\n$1\r\n0\r\n");
    kit_buf_free(&out);
}

CASE("too few, too many or no arguments: nothing is written")
{
    resp_buf out = {0};
    resp_command c = resp_begin(&out, 1);

    resp_add_text(&c, "PING");
    CHECK_OK(resp_end(&c));
    for (size_t argc = 0; argc < 4; argc++) {
        c = resp_begin(&out, argc);
        resp_add_text(&c, "GET");
        resp_add_text(&c, "key");
        CHECK_CODE(resp_end(&c), argc == 2 ? 0 : PAWL_EINVAL);
        if (argc == 2)
            HOLDS(&out, "*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n");
        if (argc == 2)
            out.end -= 22;
        HOLDS(&out, "*1\r\n$4\r\nPING\r\n");
    }
    c = resp_begin(&out, 2);
    resp_add_text(&c, "GET");
    resp_add(&c, "", SIZE_MAX);
    CHECK_CODE(resp_end(&c), PAWL_ENOMEM);
    HOLDS(&out, "*1\r\n$4\r\nPING\r\n");
    kit_buf_free(&out);
}

/* The n-th allocation fails: the earlier command stays in the buffer, the failed one is removed. */
static bool survives(int n)
{
    static char big[5000];
    resp_buf out = {0};
    resp_command c = resp_begin(&out, 1);
    int code;

    resp_add_text(&c, "PING");
    CHECK_OK(resp_end(&c));
    kit_buf_take(&out, 5); /* part of it has been sent */
    c = resp_begin(&out, 5000);
    allowed = n;
    for (int i = 0; i < 4999; i++)
        resp_add_int(&c, i);
    resp_add(&c, big, sizeof big);
    code = resp_end(&c);
    allowed = -1;
    if (code) {
        CHECK_CODE(code, PAWL_ENOMEM);
        HOLDS(&out, "4\r\nPING\r\n");
    }
    kit_buf_free(&out);
    return code == 0;
}

CASE("without memory for a command nothing of it is written")
{
    resp_buf out = {0};
    resp_command c;
    int n = 0;

    allowed = 0;
    c = resp_begin(&out, 1);
    resp_add_text(&c, "PING");
    CHECK_CODE(resp_end(&c), PAWL_ENOMEM);
    CHECK(!out.data && !kit_buf_length(&out));
    allowed = -1;
    while (!survives(n))
        n++;
    CHECK(n > 5);
    CHECK_CODE(kit_buf_reserve(&out, SIZE_MAX), PAWL_ENOMEM);
    CHECK_CODE(kit_buf_reserve(&out, SIZE_MAX / 2), PAWL_ENOMEM);
}

/* ---- Buffers --------------------------------------------------------------------------------- */

CASE("a buffer keeps its bytes in order and its size within bounds")
{
    resp_buf buf = {0};
    unsigned char in = 0, out = 0;
    uint32_t chance = 5;

    for (int i = 0; i < 100000; i++) {
        size_t n;

        chance = chance * 1664525 + 1013904223;
        n = (chance >> 16) % 200;
        CHECK_OK(kit_buf_reserve(&buf, n));
        for (size_t j = 0; j < n; j++)
            buf.data[buf.end++] = (char)in++;
        n = (chance >> 8) % 200;
        if (n > kit_buf_length(&buf) || kit_buf_length(&buf) > 1000)
            n = kit_buf_length(&buf);
        for (size_t j = 0; j < n; j++)
            CHECK((unsigned char)buf.data[buf.begin + j] == out++);
        kit_buf_take(&buf, n);
    }
    CHECK(buf.room <= 4096);
    kit_buf_free(&buf);
}

CASE("a steady flow through a buffer allocates nothing")
{
    resp_buf buf = {0};

    CHECK_OK(kit_buf_reserve(&buf, 4000));
    buf.end += 300;
    allocations = 0;
    for (int i = 0; i < 10000; i++) {
        CHECK_OK(kit_buf_reserve(&buf, 500));
        buf.end += 500;
        kit_buf_take(&buf, 500);
    }
    CHECK_EQ(allocations, 0);
    kit_buf_free(&buf);
}

CASE("what was taken out of a buffer can be wiped")
{
    resp_buf buf = {0};
    resp_command c = resp_begin(&buf, 2);

    resp_add_text(&c, "AUTH");
    resp_add_text(&c, "secret");
    CHECK_OK(resp_end(&c));
    kit_buf_take(&buf, 24);
    kit_buf_wipe(&buf);
    CHECK(!memmem(buf.data, buf.room, "secret", 4));
    CHECK(!memmem(buf.data, buf.room, "AUTH", 4));
    HOLDS(&buf, "\r\n");
    kit_buf_free(&buf);
    kit_buf_wipe(&buf);
}

/* ---- Nodes ----------------------------------------------------------------------------------- */

static resp_node text_node(enum resp_type type, const char *text)
{
    return (resp_node){.type = (uint8_t)type, .span = 1, .text = text,
                       .length = (uint32_t)strlen(text)};
}

CASE("integers are also read from texts, if they are written as integers")
{
    static const char *const none[] = {"", "-", "+1", "01", "-0", " 1", "1 ", "1.0", "x", "1x",
                                       "9223372036854775808", "-9223372036854775809",
                                       "99999999999999999999999"};
    int64_t value = 5;
    resp_node node;

    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        node = text_node(RESP_BULK, none[i]);
        CHECK(!resp_integer(&node, &value));
        CHECK_EQ(value, 5);
    }
    node = text_node(RESP_BULK, "-9223372036854775808");
    CHECK(resp_integer(&node, &value) && value == INT64_MIN);
    node = text_node(RESP_SIMPLE, "9223372036854775807");
    CHECK(resp_integer(&node, &value) && value == INT64_MAX);
    node = text_node(RESP_ERROR, "1");
    CHECK(!resp_integer(&node, &value));
    node = text_node(RESP_NULL, "");
    CHECK(!resp_integer(&node, &value));
}

CASE("doubles are read the same in every locale")
{
    resp_node node = text_node(RESP_DOUBLE, "0.5\r\n");

    node.length = 3;
    CHECK(resp_double(&node) == 0.5);
    if (!setlocale(LC_ALL, "de_DE.UTF-8"))
        check_skip("no locale with a decimal comma");
    CHECK(resp_double(&node) == 0.5);
}

CASE("errors are known by their first word, elements by their number")
{
    static const char bytes[] = "*3\r\n-NOSCRIPT No\r\n*2\r\n:1\r\n:2\r\n!4\r\nBUSY\r\n";
    resp_reader r;
    resp_reply reply;

    resp_reader_init(&r, NULL);
    CHECK_EQ(resp_next(&r, bytes, sizeof bytes - 1, &reply), RESP_GOT_REPLY);
    CHECK(resp_error_is(resp_child(reply.nodes, 0), "NOSCRIPT"));
    CHECK(!resp_error_is(resp_child(reply.nodes, 0), "NOSCRIP"));
    CHECK(!resp_error_is(resp_child(reply.nodes, 0), "NOSCRIPTS"));
    CHECK(resp_error_is(resp_child(reply.nodes, 2), "BUSY"));
    CHECK(!resp_error_is(resp_child(reply.nodes, 2), "BUSYGROUP"));
    CHECK(!resp_error_is(resp_child(reply.nodes, 1), "BUSY"));
    CHECK(!resp_child(reply.nodes, 3));
    CHECK(!resp_child(resp_child(reply.nodes, 0), 0));
    CHECK_EQ(resp_child(resp_child(reply.nodes, 1), 1)->integer, 2);
    resp_reader_free(&r);
}

/* ---- Random replies -------------------------------------------------------------------------- */

static uint32_t chance;

static uint32_t draw(uint32_t n)
{
    chance = chance * 1664525 + 1013904223;
    return (chance >> 8) % n;
}

static void random_bytes(struct text *wire, size_t length, bool binary)
{
    for (size_t i = 0; i < length; i++) {
        char c = (char)(binary ? draw(256) : 33 + draw(94));

        text_add(wire, &c, 1);
    }
}

static void random_scalar(struct text *wire)
{
    static const char *const fixed[] = {"_\r\n", "$-1\r\n", "*-1\r\n", "#t\r\n", "#f\r\n",
                                        ",inf\r\n", ",-nan\r\n", "(-12345678901234567890\r\n"};
    size_t length = draw(4) ? draw(12) : draw(300);

    switch (draw(6)) {
    case 0:
    case 1:
        text_format(wire, "%c%zu\r\n", "$!"[draw(2)], length);
        random_bytes(wire, length, true);
        break;
    case 2:
        text_format(wire, "=%zu\r\ntxt:", length + 4);
        random_bytes(wire, length, true);
        break;
    case 3:
        text_add(wire, draw(2) ? "+" : "-", 1);
        random_bytes(wire, length, false);
        break;
    case 4:
        text_format(wire, ":%lld", (long long)(((uint64_t)draw(1u << 24) << 40) >> draw(64)) *
                                       (draw(2) ? 1 : -1));
        break;
    default:
        if (draw(2))
            text_format(wire, ",%.17g", ldexp((double)draw(1u << 24) - 8e6, (int)draw(200) - 100));
        else
            text_add(wire, fixed[length % 8], strlen(fixed[length % 8]) - 2);
    }
    text_add(wire, "\r\n", 2);
}

static void random_value(struct text *wire, unsigned depth)
{
    static const char types[] = "**%~|";
    char type = types[draw(5)];
    uint32_t n = draw(5);

    if (depth == 0 || draw(3) == 0) {
        random_scalar(wire);
        return;
    }
    text_format(wire, "%c%u\r\n", type, n);
    for (uint32_t i = 0; i < (type == '%' || type == '|' ? 2 * n : n); i++)
        random_value(wire, depth - 1);
    if (type == '|')
        random_value(wire, depth);
}

static void random_reply(struct text *wire)
{
    if (draw(4)) {
        random_value(wire, draw(7));
        return;
    }
    text_format(wire, ">%d\r\n$7\r\nmessage\r\n", 2);
    random_value(wire, draw(5));
}

/* Read the replies in random pieces; both readers must give the same result. */
static void compare(resp_reader *r, const struct text *wire)
{
    static const resp_limits limits = {RESP_DEPTH, 1u << 20, 1u << 26};
    struct text have = {0}, want = {0};
    enum resp_result result, expected;
    resp_reply reply;
    size_t size, shown = 0;

    expected = reference_read(wire->data, wire->length, &limits, &want, &size);
    CHECK(expected == RESP_GOT_REPLY || expected == RESP_GOT_PUSH);
    CHECK_EQ(size, wire->length);
    while ((result = resp_next(r, wire->data, shown, &reply)) == RESP_MORE && shown < size)
        shown += 1 + draw((uint32_t)(size - shown));
    CHECK_EQ(result, expected);
    CHECK_EQ(reply.size, size);
    reference_print(&reply, wire->data, &have);
    CHECK(text_same(&have, &want));
    text_free(&have);
    text_free(&want);
}

CASE("random replies are read as the second reader reads them")
{
    struct text wire = {0};
    size_t longest = 0;
    resp_reader r;

    resp_reader_init(&r, NULL);
    for (chance = 1; r.replies < 20000;) {
        wire.length = 0;
        random_reply(&wire);
        compare(&r, &wire);
        longest = wire.length > longest ? wire.length : longest;
    }
    CHECK(longest > 10000);
    resp_reader_free(&r);
    text_free(&wire);
}
