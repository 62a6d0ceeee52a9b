/* SPDX-License-Identifier: Apache-2.0
 *
 * json.c - the data of pawl serve as JSON; docs/serve.md describes the members.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "serve.h"

int64_t boot_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

FILE *text_open(text *t)
{
    *t = (text){0};
    t->out = open_memstream(&t->data, &t->length);
    return t->out;
}

bool text_close(text *t)
{
    bool bad = ferror(t->out);

    bad |= fclose(t->out) != 0;
    if (bad)
        free(t->data);
    return !bad;
}

/* Write the name percent-encoded, as a part of a URL: JSON must be UTF-8, a name need not be. */
void put_id(FILE *out, const char *name)
{
    putc('"', out);
    for (; *name; name++) {
        unsigned char c = (unsigned char)*name;

        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
            c == '-' || c == '_' || c == '.' || c == '~')
            putc(c, out);
        else
            fprintf(out, "%%%02X", c);
    }
    putc('"', out);
}

void put_sight(FILE *out, const sight *s, int64_t now)
{
    pawl_info info = s->info;

    if (info.since_ms >= 0)
        info.since_ms += now - s->taken;
    if (info.wait_ms >= 0)
        info.wait_ms += now - s->taken;
    fputs("{\"id\":", out);
    put_id(out, info.name);
    putc(',', out);
    json_row(out, &info);
    putc('}', out);
}

void put_state(FILE *out, const board *b)
{
    fputs("\"service\":", out);
    json_string(out, b->service);
    fprintf(out, ",\"seq\":%llu,\"ok\":%s,\"error\":", (unsigned long long)b->seq,
            b->ok ? "true" : "false");
    if (b->ok)
        fputs("null", out);
    else
        json_string(out, b->error);
    if (b->taken)
        fprintf(out, ",\"age_ms\":%lld", (long long)(boot_ms() - b->taken));
    else
        fputs(",\"age_ms\":null", out);
    fprintf(out, ",\"interval_ms\":%lld,\"allow_break\":%s", (long long)b->interval_ms,
            b->allow_break ? "true" : "false");
}
