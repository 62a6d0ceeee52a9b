/* SPDX-License-Identifier: Apache-2.0
 *
 * test_resp.c - reading the wire format of Redis: each type, each limit, each kind of malformed
 * input, and all of these cut at each place. The expected result is the text that resp_reference.h
 * prints, or the error.
 */
#include <stdio.h>

#include "check.h"
#include "resp_reference.h"
#include "test_resp.h"

/* ---- Allocators that can fail ---------------------------------------------------------------- */

void *__real_malloc(size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_realloc(void *old, size_t size);

int allowed = -1, allocations;

static bool may_allocate(void)
{
    allocations++;
    return allowed < 0 || (allowed > 0 && allowed--);
}

void *__wrap_malloc(size_t size)
{
    return may_allocate() ? __real_malloc(size) : NULL;
}

void *__wrap_realloc(void *old, size_t size)
{
    return may_allocate() ? __real_realloc(old, size) : NULL;
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* Read all replies of bytes[0..length): first `cut` bytes, then the rest (step 0) or `step`
 * bytes at a time, each time at another address. Prints the replies, and the error text after an
 * error. */
static void read_cut(const resp_limits *limits, const char *bytes, size_t length, size_t cut,
                     size_t step, struct text *out)
{
    size_t begin = 0, end = cut;
    enum resp_result result;
    resp_reader r;
    resp_reply reply;

    resp_reader_init(&r, limits);
    out->length = 0;
    for (;;) {
        char *copy = __real_malloc(end - begin + 1);

        memcpy(copy, bytes + begin, end - begin);
        result = resp_next(&r, copy, end - begin, &reply);
        if (result == RESP_GOT_REPLY || result == RESP_GOT_PUSH) {
            reference_print(&reply, copy, out);
            text_add(out, "\n", 1);
            begin += reply.size;
        }
        free(copy);
        if (result == RESP_MALFORMED || (result == RESP_MORE && end == length))
            break;
        if (result == RESP_MORE)
            end = step && end + step < length ? end + step : length;
    }
    text_add(out, r.error, strlen(r.error) + 1);
    CHECK_EQ(result, r.error[0] ? RESP_MALFORMED : RESP_MORE);
    resp_reader_free(&r);
}

/* Read the bytes whole, cut in two at each place, and in pieces of each small size. The result must
 * always be `want`. */
static void reads_within(const resp_limits *limits, const char *bytes, size_t length,
                         const char *want)
{
    struct text out = {0};

    for (size_t cut = 0; cut <= length; cut++) {
        read_cut(limits, bytes, length, cut, 0, &out);
        CHECK_STR(out.data, want);
    }
    for (size_t step = 1; step < 6; step++) {
        read_cut(limits, bytes, length, 0, step, &out);
        CHECK_STR(out.data, want);
    }
    text_free(&out);
}

#define READS(literal, want) reads_within(NULL, literal, sizeof(literal) - 1, want)
#define READS_WITHIN(limits, literal, want)                                                        \
    reads_within(limits, literal, sizeof(literal) - 1, want)

CASE("simple strings and errors")
{
    READS("+OK\r\n", "+[OK]\n");
    READS("+\r\n", "+[]\n");
    READS("+a b:1$\xc3\xa4\r\n", "+[a b:1$\xc3\xa4]\n");
    READS("-ERR no such thing\r\n", "-[ERR no such thing]\n");
    READS("!9\r\nERR a\r\nb!\r\n", "![ERR a\r\nb!]\n");
}

CASE("whole numbers, to both ends of 64 bits")
{
    READS(":0\r\n", ":[0]=0\n");
    READS(":-1\r\n", ":[-1]=-1\n");
    READS(":100\r\n", ":[100]=100\n");
    READS(":9223372036854775807\r\n", ":[9223372036854775807]=9223372036854775807\n");
    READS(":-9223372036854775808\r\n", ":[-9223372036854775808]=-9223372036854775808\n");
}

CASE("bulks are binary and may be empty")
{
    READS("$0\r\n\r\n", "$[]\n");
    READS("$5\r\nhello\r\n", "$[hello]\n");
    READS("$7\r\n\r\n+A\r\n:\r\n", "$[\r\n+A\r\n:]\n");
    READS("$2\r\n17\r\n", "$[17]=17\n");
    READS("=9\r\ntxt:hello\r\n", "=[hello]\n");
    READS("=4\r\nmkd:\r\n", "=[]\n");
}

CASE("nulls of both protocols, booleans")
{
    READS("_\r\n", "_[]\n");
    READS("$-1\r\n", "_[]\n");
    READS("*-1\r\n", "_[]\n");
    READS("*2\r\n$-1\r\n*-1\r\n", "*2(_[] _[] )\n");
    READS("#t\r\n#f\r\n", "#[t]=1\n#[f]=0\n");
}

CASE("doubles and big numbers")
{
    READS(",3.25\r\n", ",[3.25]=3.25\n");
    READS(",10\r\n", ",[10]=10\n");
    READS(",-0\r\n", ",[-0]=-0\n");
    READS(",1e+30\r\n,2.5E-1\r\n,0.5e3\r\n", ",[1e+30]=1e+30\n,[2.5E-1]=0.25\n,[0.5e3]=500\n");
    READS(",inf\r\n,-inf\r\n,nan\r\n", ",[inf]=inf\n,[-inf]=-inf\n,[nan]=nan\n");
    READS("(12345678901234567890123\r\n(-7\r\n(0\r\n", "([12345678901234567890123]\n([-7]\n([0]\n");
}

CASE("aggregates, nested and empty")
{
    READS("*0\r\n%0\r\n~0\r\n", "*0()\n%0()\n~0()\n");
    READS("*3\r\n:1\r\n*2\r\n+a\r\n*0\r\n$1\r\nz\r\n", "*3(:[1]=1 *2(+[a] *0() ) $[z] )\n");
    READS("%2\r\n+a\r\n:1\r\n+b\r\n%1\r\n_\r\n#t\r\n", "%4(+[a] :[1]=1 +[b] %2(_[] #[t]=1 ) )\n");
    READS("~2\r\n+a\r\n~1\r\n+b\r\n", "~2(+[a] ~1(+[b] ) )\n");
    READS("*2\r\n-ERR in here\r\n+OK\r\n", "*2(-[ERR in here] +[OK] )\n");
}

CASE("attributes are left out wherever they stand")
{
    READS("|1\r\n+ttl\r\n:3600\r\n+OK\r\n", "+[OK]\n");
    READS("|0\r\n|0\r\n:1\r\n", ":[1]=1\n");
    READS("*2\r\n|1\r\n+a\r\n*1\r\n+b\r\n:1\r\n:2\r\n", "*2(:[1]=1 :[2]=2 )\n");
    READS("*2\r\n:1\r\n|1\r\n+a\r\n+b\r\n*1\r\n:2\r\n", "*2(:[1]=1 *1(:[2]=2 ) )\n");
    READS("|1\r\n|1\r\n+a\r\n+b\r\n+c\r\n|0\r\n+d\r\n+e\r\n", "+[e]\n");
    READS("|1\r\n+a\r\n+b\r\n", "");
}

CASE("pushes are told apart, before, between and after replies")
{
    static const char bytes[] = ">2\r\n+hi\r\n:1\r\n+OK\r\n"
                                "|1\r\n+a\r\n+b\r\n>1\r\n|0\r\n$2\r\nyo\r\n";
    enum resp_result want[] = {RESP_GOT_PUSH, RESP_GOT_REPLY, RESP_GOT_PUSH, RESP_MORE};
    size_t at = 0;
    resp_reader r;
    resp_reply reply;

    resp_reader_init(&r, NULL);
    for (size_t i = 0; i < 4; i++, at += reply.size)
        CHECK_EQ(resp_next(&r, bytes + at, sizeof bytes - 1 - at, &reply), want[i]);
    CHECK_EQ(r.replies, 3);
    resp_reader_free(&r);
    READS(">2\r\n+hi\r\n:1\r\n+OK\r\n", ">2(+[hi] :[1]=1 )\n+[OK]\n");
}

/* ---- Malformed ------------------------------------------------------------------------------- */

CASE("what is no type is refused, and the place is named")
{
    READS("HTTP/1.1 400\r\n", "reply 1, byte 0: expected a type, got 'H'");
    READS("+OK\r\nPING\r\n", "+[OK]\nreply 2, byte 0: expected a type, got 'P'");
    READS("*2\r\n:1\r\n\r\n", "reply 1, byte 8: expected a type, got \\x0d");
    READS(".\r\n", "reply 1, byte 0: expected a type, got '.'");
    READS(";4\r\nHell\r\n", "reply 1, byte 0: expected a type, got ';'");
    for (int c = 0; c < 256; c++) {
        char byte = (char)c;
        resp_reader r;
        resp_reply reply;

        resp_reader_init(&r, NULL);
        CHECK_EQ(resp_next(&r, &byte, 1, &reply),
                 c && strchr("+-:$*_#,(!=%~>|", c) ? RESP_MORE : RESP_MALFORMED);
        resp_reader_free(&r);
    }
}

CASE("lines without a proper end are refused")
{
    READS("+OK\n", "reply 1, byte 3: expected CR, got \\x0a");
    READS("+O\rK\r\n", "reply 1, byte 3: expected LF, got 'K'");
    READS("-a\r\r\n", "reply 1, byte 3: expected LF, got \\x0d");
    READS(":1\n", "reply 1, byte 2: expected CR, got \\x0a");
    READS(":1\rx", "reply 1, byte 3: expected LF, got 'x'");
    READS("_x\r\n", "reply 1, byte 1: expected CR, got 'x'");
    READS("#tt\r\n", "reply 1, byte 2: expected CR, got 't'");
    READS("$2\r\nabc\r\n", "reply 1, byte 6: expected CR, got 'c'");
    READS("$2\r\nab\rc", "reply 1, byte 7: expected LF, got 'c'");
    READS("$2\nab\r\n", "reply 1, byte 2: expected CR, got \\x0a");
    READS("*1\n:1\r\n", "reply 1, byte 2: expected CR, got \\x0a");
    READS(",1\n", "reply 1, byte 2: expected CR, got \\x0a");
}

CASE("whole numbers have one spelling and 64 bits")
{
    READS(":+1\r\n", "reply 1, byte 1: expected a digit, got '+'");
    READS(":\r\n", "reply 1, byte 1: expected a digit, got \\x0d");
    READS(":-\r\n", "reply 1, byte 2: expected a digit, got \\x0d");
    READS(":--1\r\n", "reply 1, byte 2: expected a digit, got '-'");
    READS(": 1\r\n", "reply 1, byte 1: expected a digit, got \\x20");
    READS(":1 \r\n", "reply 1, byte 2: expected CR, got \\x20");
    READS(":1.5\r\n", "reply 1, byte 2: expected CR, got '.'");
    READS(":0x10\r\n", "reply 1, byte 2: expected CR, got 'x'");
    READS(":01\r\n", "reply 1, byte 2: a number with a leading zero");
    READS(":-01\r\n", "reply 1, byte 3: a number with a leading zero");
    READS(":-0\r\n", "reply 1, byte 2: minus zero");
    READS(":9223372036854775808\r\n", "reply 1, byte 19: a number beyond 64 bits");
    READS(":-9223372036854775809\r\n", "reply 1, byte 20: a number beyond 64 bits");
    READS(":10000000000000000000\r\n", "reply 1, byte 20: a number beyond 64 bits");
    READS(":99999999999999999999\r\n", "reply 1, byte 19: a number beyond 64 bits");
}

CASE("lengths are neither negative nor streamed nor beyond the limits")
{
    READS("$-2\r\n", "reply 1, byte 1: a negative length");
    READS("!-1\r\n", "reply 1, byte 1: a negative length");
    READS("=-1\r\n", "reply 1, byte 1: a negative length");
    READS("*-2\r\n", "reply 1, byte 1: a negative length");
    READS("%-1\r\n", "reply 1, byte 1: a negative length");
    READS("~-1\r\n", "reply 1, byte 1: a negative length");
    READS(">-1\r\n", "reply 1, byte 1: a negative length");
    READS("|-1\r\n", "reply 1, byte 1: a negative length");
    READS("$+2\r\nab\r\n", "reply 1, byte 1: expected a digit, got '+'");
    READS("$02\r\nab\r\n", "reply 1, byte 2: a number with a leading zero");
    READS("$-9223372036854775808\r\n", "reply 1, byte 1: a negative length");
    READS("$9223372036854775807\r\n", "reply 1, byte 1: longer than 67108864 bytes");
    READS("$18446744073709551616\r\n", "reply 1, byte 20: a number beyond 64 bits");
    READS("$4294967296\r\n", "reply 1, byte 1: longer than 67108864 bytes");
    READS("*9223372036854775807\r\n", "reply 1, byte 1: more than 1048576 elements");
    READS("*4294967297\r\n", "reply 1, byte 1: more than 1048576 elements");
    READS("%4611686018427387905\r\n", "reply 1, byte 1: more than 1048576 elements");
    READS("%2147483649\r\n", "reply 1, byte 1: more than 1048576 elements");
    READS("%524289\r\n", "reply 1, byte 1: more than 1048576 elements");
    READS("$?\r\n", "reply 1, byte 1: streamed replies are not supported");
    READS("*?\r\n", "reply 1, byte 1: streamed replies are not supported");
    READS("%?\r\n", "reply 1, byte 1: streamed replies are not supported");
    READS(">?\r\n", "reply 1, byte 1: streamed replies are not supported");
    READS(":?\r\n", "reply 1, byte 1: expected a digit, got '?'");
}

CASE("other numbers, booleans and verbatim texts follow their grammar")
{
    static const char *const numbers[] = {
        ",", ",-", ",+1", ",.5", ",1.", ",1.e5", ",1e", ",1e+", ",1e5.0", ",00", ",01.5", ",Inf",
        ",+inf", ",infinity", ",inf ", ",0x1p3", ",1,5", ", 1", ",1 ", ",--1", ",1e5e5", ",na",
        "(", "(-", "(+1", "(01", "(-0", "(1.0", "(1x", "( 1", "(1e5",
    };
    char bytes[32];

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        int length = snprintf(bytes, sizeof bytes, "%s\r\n", numbers[i]);

        reads_within(NULL, bytes, (size_t)length, "reply 1, byte 1: not a number");
    }
    READS("#T\r\n", "reply 1, byte 1: expected 't' or 'f', got 'T'");
    READS("#\r\n", "reply 1, byte 1: expected 't' or 'f', got \\x0d");
    READS("=3\r\ntxt\r\n", "reply 1, byte 1: a verbatim text without a format");
    READS("=0\r\n\r\n", "reply 1, byte 1: a verbatim text without a format");
    READS("=5\r\ntxt-", "reply 1, byte 7: expected ':', got '-'");
    READS("=5\r\ntxt-a\r\n", "reply 1, byte 7: expected ':', got '-'");
}

CASE("a push is never inside a reply and begins with its kind")
{
    READS("*1\r\n>1\r\n+a\r\n", "reply 1, byte 4: a push inside a reply");
    READS("|1\r\n>1\r\n+a\r\n", "reply 1, byte 4: a push inside a reply");
    READS(">1\r\n>1\r\n+a\r\n", "reply 1, byte 4: a push inside a reply");
    READS(">0\r\n", "reply 1, byte 1: a push without its kind");
    READS(">1\r\n:1\r\n", "reply 1, byte 4: a push whose kind is no text");
    READS(">1\r\n$-1\r\n", "reply 1, byte 4: a push whose kind is no text");
    READS(">1\r\n*1\r\n+a\r\n", "reply 1, byte 4: a push whose kind is no text");
    READS(">2\r\n|0\r\n-a\r\n+b\r\n", "reply 1, byte 8: a push whose kind is no text");
}

CASE("after an error the reader says the same until it is reset")
{
    resp_reader r;
    resp_reply reply;

    resp_reader_init(&r, NULL);
    CHECK_EQ(resp_next(&r, "*2\r\n:1\r\nx", 9, &reply), RESP_MALFORMED);
    CHECK_EQ(resp_next(&r, "+OK\r\n", 5, &reply), RESP_MALFORMED);
    CHECK_STR(r.error, "reply 1, byte 8: expected a type, got 'x'");
    resp_reader_reset(&r);
    CHECK_EQ(resp_next(&r, "+OK\r\n", 5, &reply), RESP_GOT_REPLY);
    CHECK_EQ(reply.count, 1);
    CHECK_EQ(resp_next(&r, NULL, 0, &reply), RESP_MORE);
    resp_reader_free(&r);
    resp_reader_free(&r);
}

/* ---- Limits ---------------------------------------------------------------------------------- */

CASE("depth: sixteen and not seventeen, whatever they are made of")
{
    static const char *const heads[] = {"*1\r\n", "~1\r\n", "%1\r\n+k\r\n", "|1\r\n+k\r\n"};
    char bytes[300];
    resp_reader r;
    resp_reply reply;

    for (size_t kind = 0; kind < 4; kind++)
        for (int depth = 15; depth < 100; depth += 1) {
            size_t length = 0;
            enum resp_result want = kind == 3 ? RESP_MORE : RESP_GOT_REPLY;

            for (int i = 0; i < depth && length < sizeof bytes - 20; i++)
                length += (size_t)snprintf(bytes + length, 20, "%s", heads[kind]);
            length += (size_t)snprintf(bytes + length, 20, ":1\r\n");
            resp_reader_init(&r, NULL);
            CHECK_EQ(resp_next(&r, bytes, length, &reply), depth <= 16 ? want : RESP_MALFORMED);
            CHECK(depth <= 16 || strstr(r.error, "nested deeper than 16"));
            resp_reader_free(&r);
        }
}

CASE("depth, elements and bytes of a reply can be limited further")
{
    resp_limits depth = {.depth = 2}, elements = {.elements = 4}, bytes = {.bytes = 12};

    READS_WITHIN(&depth, "*1\r\n*1\r\n:1\r\n", "*1(*1(:[1]=1 ) )\n");
    READS_WITHIN(&depth, "*1\r\n*1\r\n*0\r\n", "*1(*1(*0() ) )\n");
    READS_WITHIN(&depth, "*1\r\n*1\r\n*1\r\n", "reply 1, byte 9: nested deeper than 2");
    READS_WITHIN(&elements, "*4\r\n_\r\n_\r\n_\r\n_\r\n", "*4(_[] _[] _[] _[] )\n");
    READS_WITHIN(&elements, "*5\r\n", "reply 1, byte 1: more than 4 elements");
    READS_WITHIN(&elements, "%2\r\n_\r\n_\r\n_\r\n_\r\n", "%4(_[] _[] _[] _[] )\n");
    READS_WITHIN(&elements, "%3\r\n", "reply 1, byte 1: more than 4 elements");
    READS_WITHIN(&elements, "*3\r\n_\r\n*2\r\n", "reply 1, byte 8: more than 4 elements");
    READS_WITHIN(&elements, "|1\r\n_\r\n_\r\n*3\r\n", "reply 1, byte 11: more than 4 elements");
    READS_WITHIN(&bytes, "$6\r\n123456\r\n$-1\r\n", "$[123456]=123456\n_[]\n");
    READS_WITHIN(&bytes, "$7\r\n", "reply 1, byte 1: longer than 12 bytes");
    READS_WITHIN(&bytes, "+123456789\r\n", "+[123456789]=123456789\n");
    READS_WITHIN(&bytes, "+1234567890\r\n", "reply 1, byte 12: longer than 12 bytes");
    READS_WITHIN(&bytes, "+12345678901234567890", "reply 1, byte 12: longer than 12 bytes");
    READS_WITHIN(&bytes, "*3\r\n:1\r\n:2\r\n:3\r\n", "reply 1, byte 12: longer than 12 bytes");
    READS_WITHIN(&bytes, "|0\r\n|0\r\n|0\r\n|0\r\n", "reply 1, byte 12: longer than 12 bytes");
    READS_WITHIN(&bytes, "*2\r\n*2\r\n$3\r\nabc", "reply 1, byte 9: longer than 12 bytes");
    READS_WITHIN(&bytes, "*2\r\n:1\r\n$2\r\n", "reply 1, byte 9: longer than 12 bytes");
}

CASE("memory follows what arrived, not what was announced, and is reused")
{
    static char bytes[1 << 16];
    size_t length = (size_t)snprintf(bytes, sizeof bytes, "*5000\r\n");
    resp_reader r;
    resp_reply reply;

    for (int i = 0; i < 5000; i++, length += 4)
        memcpy(bytes + length, ":7\r\n", 4);
    resp_reader_init(&r, NULL);
    CHECK_EQ(resp_next(&r, "*1048576\r\n", 10, &reply), RESP_MORE);
    CHECK_EQ(r.room, 32);
    resp_reader_reset(&r);
    CHECK_EQ(resp_next(&r, bytes, length, &reply), RESP_GOT_REPLY);
    allocations = 0;
    for (int i = 0; i < 10; i++) {
        CHECK_EQ(resp_next(&r, bytes, length, &reply), RESP_GOT_REPLY);
        CHECK_EQ(reply.count, 5001);
    }
    CHECK_EQ(allocations, 0);
    resp_reader_free(&r);
}

CASE("a long line or bulk that trickles in is not read again and again")
{
    enum { LENGTH = 1 << 20 };
    char *bytes = malloc(LENGTH + 32);
    size_t head = (size_t)snprintf(bytes, 32, "*2\r\n$%d\r\n", LENGTH / 2), length = head;
    resp_reader r;
    resp_reply reply;

    memset(bytes + length, 'x', LENGTH);
    memcpy(bytes + head + LENGTH / 2, "\r\n+", 3);
    length += LENGTH;
    memcpy(bytes + length, "\r\n", 3);
    resp_reader_init(&r, NULL);
    for (size_t shown = 0; shown < length + 2; shown++)
        CHECK_EQ(resp_next(&r, bytes, shown, &reply), RESP_MORE);
    CHECK_EQ(resp_next(&r, bytes, length + 2, &reply), RESP_GOT_REPLY);
    CHECK_EQ(reply.nodes[2].length, LENGTH / 2 - 3);
    resp_reader_free(&r);
    free(bytes);
}

CASE("without memory for nodes nothing is lost")
{
    static char bytes[4096];
    size_t length = (size_t)snprintf(bytes, sizeof bytes, "*200\r\n"), refusals = 0;
    enum resp_result result;
    resp_reader r;
    resp_reply reply;

    for (int i = 0; i < 100; i++)
        length += (size_t)snprintf(bytes + length, 32, ":%d\r\n$1\r\nx\r\n", i);
    resp_reader_init(&r, NULL);
    allowed = 0;
    while ((result = resp_next(&r, bytes, length, &reply)) == RESP_NO_MEMORY) {
        refusals++;
        CHECK_EQ(resp_next(&r, bytes, length, &reply), RESP_NO_MEMORY);
        allowed = 1;
    }
    allowed = -1;
    CHECK_EQ(result, RESP_GOT_REPLY);
    CHECK_EQ(refusals, 4); /* 32, 64, 128, 256 */
    for (uint32_t i = 0; i < 100; i++)
        CHECK_EQ(resp_child(reply.nodes, 2 * i)->integer, i);
    resp_reader_free(&r);
}

int main(int argc, char **argv)
{
    return check_main(argc, argv);
}
