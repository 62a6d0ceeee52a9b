/* SPDX-License-Identifier: Apache-2.0
 *
 * report.c - the findings of pawl doctor: a list in the order of arrival, printed with the most
 * severe first. Texts from servers are escaped as everywhere (text.c).
 */
#include <stdlib.h>
#include <string.h>

#include "doctor.h"

struct entry {
    entry *next;
    pawl_finding finding;
    char text[];
};

static const char *const levels[] = {"fact", "skipped", "warning", "danger"};

/* ---- collecting ---------------------------------------------------------------------------- */

void report_begin(report *r)
{
    *r = (report){.end = &r->first};
}

void report_free(report *r)
{
    while (r->first) {
        entry *e = r->first;

        r->first = e->next;
        free(e);
    }
}

static const char *put(char **at, const char *text)
{
    char *ret = *at;

    *at = stpcpy(ret, text) + 1;
    return ret;
}

static bool same(const pawl_finding *a, const pawl_finding *b)
{
    return a->level == b->level && !strcmp(a->id, b->id) && !strcmp(a->where, b->where) &&
           !strcmp(a->what, b->what);
}

int report_add(void *arg, const pawl_finding *f)
{
    report *r = arg;
    entry *e;
    char *at;

    for (e = r->first; e; e = e->next)
        if (same(&e->finding, f))
            return 0;
    e = malloc(sizeof *e + strlen(f->id) + strlen(f->where) + strlen(f->what) + strlen(f->why) +
               strlen(f->remedy) + 5);
    if (!e) {
        r->no_memory = true;
        return PAWL_ENOMEM;
    }
    *e = (entry){.finding = *f};
    at = e->text;
    e->finding.id = put(&at, f->id);
    e->finding.where = put(&at, f->where);
    e->finding.what = put(&at, f->what);
    e->finding.why = put(&at, f->why);
    e->finding.remedy = put(&at, f->remedy);
    e->finding.level = f->level < PAWL_FINDING_DANGER ? f->level : PAWL_FINDING_DANGER;
    r->n[e->finding.level]++;
    *r->end = e;
    r->end = &e->next;
    return 0;
}

void report_found(report *r, uint64_t level, const char *id, const char *what, const char *why,
                  const char *remedy)
{
    pawl_finding f = {.level = level, .id = id, .where = "", .what = what, .why = why,
                      .remedy = remedy};

    report_add(r, &f);
}

bool report_has(const report *r, const char *id)
{
    for (const entry *e = r->first; e; e = e->next)
        if (e->finding.level >= PAWL_FINDING_WARNING && !strcmp(e->finding.id, id))
            return true;
    return false;
}

bool report_knows(const report *r, const char *id, const char *where)
{
    for (const entry *e = r->first; e; e = e->next)
        if (e->finding.level >= PAWL_FINDING_WARNING && !strcmp(e->finding.id, id) &&
            !strcmp(e->finding.where, where))
            return true;
    return false;
}

bool report_fact(const report *r, const char *id, size_t nth, int64_t *value)
{
    for (const entry *e = r->first; e; e = e->next)
        if (e->finding.level == PAWL_FINDING_FACT && !strcmp(e->finding.id, id) && !nth--) {
            *value = e->finding.value;
            return true;
        }
    return false;
}

void report_each(const report *r, pawl_finding_fn *fn, void *arg)
{
    for (const entry *e = r->first; e && !fn(arg, &e->finding); e = e->next)
        ;
}

/* ---- for people ---------------------------------------------------------------------------- */

/* Print a text, wrapped at 78 columns behind a margin of 8. */
static void print_wrapped(const char *title, const char *text)
{
    size_t column = 8;

    if (!*text)
        return;
    printf("  %-5s", title);
    for (bool first = true; *text; text += strspn(text, " ")) {
        int n = (int)strcspn(text, " ");
        char word[512];

        snprintf(word, sizeof word, "%.*s", n, text);
        if (!first && column + 1 + (size_t)n > 78) {
            fputs("\n       ", stdout);
            column = 7;
        }
        putchar(' ');
        text_put(stdout, word);
        column += 1 + (size_t)n;
        text += n;
        first = false;
    }
    putchar('\n');
}

static void print_finding(const pawl_finding *f)
{
    static const char *const titles[] = {"", "NOT CHECKED", "WARNING", "DANGER"};

    printf("\n%s  %s", titles[f->level], f->id);
    if (*f->where) {
        fputs("  (", stdout);
        text_put(stdout, f->where);
        putchar(')');
    }
    putchar('\n');
    print_wrapped("what", f->what);
    print_wrapped("why", f->why);
    print_wrapped("do", f->remedy);
}

static void print_fact(const pawl_finding *f)
{
    if (!strcmp(f->id, "run") || !strcmp(f->id, "machine"))
        return; /* facts for the nodes of a quorum and for JSON only */
    text_put(stdout, *f->where ? f->where : f->id);
    fputs(": ", stdout);
    text_put(stdout, f->what);
    putchar('\n');
}

static void print_trips(const report *r)
{
    char lease[32];

    if (r->trips)
        printf("round trip: %.2f ms, slowest of %lld: %.2f ms; lease: %s\n",
               (double)r->median_us / 1000, (long long)r->trips, (double)r->slowest_us / 1000,
               duration_text(lease, sizeof lease, r->lease_ms));
}

static void print_text(const report *r)
{
    size_t bad = r->n[PAWL_FINDING_WARNING] + r->n[PAWL_FINDING_DANGER];

    for (const entry *e = r->first; e; e = e->next)
        if (e->finding.level == PAWL_FINDING_FACT)
            print_fact(&e->finding);
    print_trips(r);
    for (uint64_t level = PAWL_FINDING_DANGER; level >= PAWL_FINDING_SKIPPED; level--)
        for (const entry *e = r->first; e; e = e->next)
            if (e->finding.level == level)
                print_finding(&e->finding);
    if (bad)
        printf("\n%zu finding%s", bad, bad == 1 ? "" : "s");
    else
        printf("%sno findings", r->n[PAWL_FINDING_SKIPPED] ? "\n" : "");
    if (r->n[PAWL_FINDING_SKIPPED])
        printf("; %zu not checked", r->n[PAWL_FINDING_SKIPPED]);
    putchar('\n');
}

/* ---- for machines -------------------------------------------------------------------------- */

static void json_member(const char *key, const char *text)
{
    printf(",\"%s\":", key);
    json_string(stdout, text);
}

static void json_finding(const pawl_finding *f)
{
    printf("{\"level\":\"%s\"", levels[f->level]);
    json_member("id", f->id);
    json_member("where", f->where);
    json_member("what", f->what);
    if (f->level == PAWL_FINDING_FACT) {
        printf(",\"value\":%lld}", (long long)f->value);
        return;
    }
    json_member("why", f->why);
    json_member("remedy", f->remedy);
    putchar('}');
}

static void json_list(const report *r, const char *key, uint64_t from, uint64_t to)
{
    const char *comma = "";

    printf("\"%s\":[", key);
    for (const entry *e = r->first; e; e = e->next)
        if (e->finding.level >= from && e->finding.level <= to) {
            fputs(comma, stdout);
            json_finding(&e->finding);
            comma = ",";
        }
    putchar(']');
}

static void print_json(const report *r)
{
    printf("{\"sound\":%s,",
           r->n[PAWL_FINDING_WARNING] + r->n[PAWL_FINDING_DANGER] ? "false" : "true");
    json_list(r, "findings", PAWL_FINDING_WARNING, PAWL_FINDING_DANGER);
    putchar(',');
    json_list(r, "skipped", PAWL_FINDING_SKIPPED, PAWL_FINDING_SKIPPED);
    putchar(',');
    json_list(r, "facts", PAWL_FINDING_FACT, PAWL_FINDING_FACT);
    printf(",\"lease_ms\":%lld", (long long)r->lease_ms);
    if (r->trips)
        printf(",\"round_trip\":{\"count\":%lld,\"median_us\":%lld,\"slowest_us\":%lld}",
               (long long)r->trips, (long long)r->median_us, (long long)r->slowest_us);
    puts("}");
}

void report_print(const report *r, const tool *t)
{
    if (t->json)
        print_json(r);
    else
        print_text(r);
}
