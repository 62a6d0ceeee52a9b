/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_url.c - any bytes as a URL.
 *
 * Rules: a refused URL leaves the result unchanged, and the error has a text. An accepted URL has
 * its parts as they were written, with each parameter decoded and only once. A URL that is written
 * again from these parts, with every byte escaped, is the same URL.
 */
#include "core.h"
#include "fuzz.h"

static void write_escaped(FILE *out, const char *text)
{
    for (; *text; text++)
        fprintf(out, "%%%02x", (unsigned char)*text);
}

static char *written(const pawl_url *url)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);

    DEMAND(out);
    fprintf(out, "%s:%s", url->scheme, url->rest);
    for (size_t i = 0; i < url->nparams; i++) {
        fputc(i ? '&' : '?', out);
        write_escaped(out, url->params[i].key);
        fputc('=', out);
        write_escaped(out, url->params[i].value);
    }
    DEMAND(!fclose(out));
    return text;
}

static void same(const pawl_url *a, const pawl_url *b)
{
    DEMAND(!strcmp(a->scheme, b->scheme) && !strcmp(a->rest, b->rest));
    DEMAND(a->nparams == b->nparams);
    for (size_t i = 0; i < a->nparams; i++) {
        DEMAND(!strcmp(a->params[i].key, b->params[i].key));
        DEMAND(!strcmp(a->params[i].value, b->params[i].value));
    }
}

/* Whether the scheme is as written, or Pawl's name for an alias. */
static bool named(const char *text, size_t length, const char *scheme)
{
    static const char *const names[][2] = {{"postgresql", "postgres"}, {"mariadb", "mysql"},
                                           {"valkey", "redis"}, {"valkeys", "rediss"}};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i][0]) == length && !strncmp(text, names[i][0], length))
            return !strcmp(scheme, names[i][1]);
    return length && strlen(scheme) == length && !strncmp(text, scheme, length);
}

static void accepted(const pawl_url *url, const char *text)
{
    size_t scheme = strcspn(text, ":");
    char *again = written(url);
    pawl_url second;

    DEMAND(text[scheme] == ':' && named(text, scheme, url->scheme));
    DEMAND(!strncmp(text + scheme + 1, url->rest, strlen(url->rest)));
    for (size_t i = 0; i < url->nparams; i++)
        for (size_t j = 0; j < i; j++)
            DEMAND(strcmp(url->params[i].key, url->params[j].key));
    DEMAND(pawl__url_parse(&second, again, NULL) == 0);
    same(url, &second);
    pawl__url_free(&second);
    free(again);
}

static void use(const pawl_url *url)
{
    pawl_error err = {0};
    int64_t ms = -1;

    DEMAND((pawl__url_all_used(url, &err) == 0) == (url->nparams == 0));
    for (size_t i = 0; i < url->nparams; i++) {
        int code = pawl__url_ms(url, url->params[i].key, &ms, &err);

        DEMAND(code == PAWL_EINVAL || (code == 0 && ms > 0));
    }
    DEMAND(pawl__url_all_used(url, &err) == 0);
}

static void refused(const pawl_url *url, int code, const pawl_error *err)
{
    static const pawl_url untouched;

    DEMAND(code == PAWL_EINVAL && err->code == code);
    DEMAND(err->text[0] && memchr(err->text, 0, sizeof err->text));
    DEMAND(!memcmp(url, &untouched, sizeof *url));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1); /* no spare byte, so that a read after the end is detected */
    pawl_error err = {0};
    pawl_url url;
    int code;

    DEMAND(text);
    memset(&url, 0, sizeof url);
    if (size)
        memcpy(text, data, size);
    text[size] = 0;
    code = pawl__url_parse(&url, text, &err);
    if (code) {
        refused(&url, code, &err);
    } else {
        accepted(&url, text);
        use(&url);
        pawl__url_free(&url);
    }
    free(text);
    return 0;
}
