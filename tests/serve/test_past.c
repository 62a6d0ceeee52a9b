/* SPDX-License-Identifier: Apache-2.0
 *
 * test_past.c - the last hour of `pawl serve`, compared with a plain list of all rounds. The clock
 * of the history begins when the machine starts, so the first hour after a start is tested as well
 * as later hours.
 */
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "serve.h"

enum { ROUNDS = 400 };

int64_t boot_ms(void)
{
    return 0;
}

typedef struct pushed {
    int64_t at, holders;
} pushed;

/* The maximum of the rounds in the slot that begins at `begin`, as past_json prints it. */
static void expect_slot(FILE *out, const pushed *rounds, int n, int64_t begin)
{
    int64_t most = -1;

    for (int i = 0; i < n; i++)
        if (begin >= 0 && rounds[i].at / SLOT_MS == begin / SLOT_MS && rounds[i].holders > most)
            most = rounds[i].holders;
    if (most < 0)
        fputs("null", out);
    else
        fprintf(out, "%lld", (long long)most);
}

static void check_json(const history *h, const pushed *rounds, int n, int64_t now)
{
    char *expected, *printed, *holders, *end;
    size_t size;
    FILE *out = open_memstream(&expected, &size);

    for (int64_t back = SLOTS - 1; back >= 0; back--) {
        expect_slot(out, rounds, n, (now / SLOT_MS - back) * SLOT_MS);
        if (back > 0)
            putc(',', out);
    }
    fclose(out);
    out = open_memstream(&printed, &size);
    past_json(h, out, now);
    fclose(out);
    holders = strstr(printed, "\"holders\":[");
    CHECK(holders);
    holders += strlen("\"holders\":[");
    end = strchr(holders, ']');
    CHECK(end);
    *end = 0;
    CHECK_STR(holders, expected);
    free(expected);
    free(printed);
}

/* Rounds at random times from `begin` on, with gaps of up to `gap` ms. */
static void run_rounds(unsigned seed, int64_t begin, int64_t gap)
{
    struct {
        int64_t before[8];
        history h;
        int64_t after[8];
    } *guarded = calloc(1, sizeof *guarded);
    static pushed rounds[ROUNDS];
    int64_t now = begin;

    CHECK(guarded);
    for (int i = 0; i < ROUNDS; i++) {
        slot s = {.holders = rand_r(&seed) % 100, .waiters = 1, .hold_ms = 1, .wait_ms = -1};

        rounds[i] = (pushed){now, s.holders};
        past_push(&guarded->h, now, &s);
        if (i % 20 == 0)
            check_json(&guarded->h, rounds, i + 1, now);
        now += 1 + rand_r(&seed) % gap;
    }
    for (int i = 0; i < 8; i++)
        CHECK(!guarded->before[i] && !guarded->after[i]);
    free(guarded);
}

CASE("the first hour after the start of the machine")
{
    for (unsigned seed = 1; seed <= 20; seed++) {
        run_rounds(seed, 0, 20000);
        run_rounds(seed, 1 + (int64_t)seed * 150000, 3000);
    }
}

CASE("later hours, with and without gaps")
{
    for (unsigned seed = 1; seed <= 20; seed++) {
        run_rounds(seed, 123456789012, 3000);
        run_rounds(seed, 4000000 + seed, 900000);
        run_rounds(seed, 3590000, 7200000);
    }
}

int main(int argc, char **argv)
{
    return check_main(argc, argv);
}
