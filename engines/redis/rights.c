/* SPDX-License-Identifier: Apache-2.0
 *
 * rights.c - finds the right that the user lacks, if the server's error does not name the right.
 *
 * Every server names a refused command, except inside scripts: Redis before 7.2 names only the line
 * of the script, and the command is found in that line of the script's text. No server names
 * refused keys and channels; the patterns that the user needs follow from the settings.
 */
#include <ctype.h>
#include <stdlib.h>

#include "redis.h"

static bool says(const resp_node *reply, const char *text)
{
    return memmem(reply->text, reply->length, text, strlen(text)) != NULL;
}

__attribute__((format(printf, 2, 3)))
static void add(char words[REDIS_WORDS], const char *format, ...)
{
    size_t length = strlen(words);
    va_list args;

    va_start(args, format);
    vsnprintf(words + length, REDIS_WORDS - length, format, args);
    va_end(args);
}

/* The script whose digest is in the error. */
static const redis_script *script_of(const resp_node *reply)
{
    static const redis_script *const scripts[] = {
        &redis_script_acquire, &redis_script_release, &redis_script_cancel, &redis_script_renew,
        &redis_script_break, &redis_script_inspect, &redis_script_latch, &redis_script_entry,
        &redisson_script_acquire, &redisson_script_release, &redisson_script_renew,
        &redisson_script_break, &redisson_script_inspect, &redisson_script_latch};

    for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++)
        if (says(reply, scripts[i]->sha))
            return scripts[i];
    return NULL;
}

/* The line that the error names, "@user_script:12"; NULL: none. */
static const char *line_of(const redis_script *script, const resp_node *reply)
{
    static const char mark[] = "user_script:";
    const char *at = memmem(reply->text, reply->length, mark, sizeof mark - 1);
    const char *end = reply->text + reply->length, *line = script->text;
    int number = 0;

    for (at = at ? at + sizeof mark - 1 : end; at < end && isdigit((unsigned char)*at); at++)
        number = number < 10000 ? number * 10 + *at - '0' : number;
    for (int i = 1; line && i < number; i++) {
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    return number > 0 ? line : NULL;
}

/* "+pexpireat or +pttl": all commands that the line calls. */
static void add_commands(char words[REDIS_WORDS], const char *line)
{
    const char *end = line + strcspn(line, "\n"), *at = line;
    const char *before = "; the user needs ";
    char *more = strstr(words, " script: ");

    if (more)
        *more = 0;
    while ((at = strstr(at, "call('")) && at < end) {
        char name[32];
        size_t n = 0;

        for (at += 6; n + 1 < sizeof name && isalpha((unsigned char)*at); at++)
            name[n++] = (char)tolower((unsigned char)*at);
        name[n] = 0;
        if (!strcmp(name, "cluster")) /* the only command with a subcommand */
            strcpy(name, "cluster|myid");
        add(words, "%s+%s", before, name);
        before = " or ";
    }
}

static void add_keys(char words[REDIS_WORDS], const redis_settings *s)
{
    const char *p = s->prefix;

    snprintf(words, REDIS_WORDS, "the server says: NOPERM");
    if (s->redisson)
        add(words, "; the user needs the keys ~%.20s* ~{%.20s*}:* ~redisson_*%.20s* "
            "~{pawl@*}:client", p, p, p);
    else
        add(words, "; the user needs the keys ~%.24s* ~{%.24s* ~{*}:%.24s*", p, p, p);
}

static void add_channels(char words[REDIS_WORDS], const redis_link *link)
{
    const redis_settings *s = link->settings;

    snprintf(words, REDIS_WORDS, "the server says: NOPERM");
    if (link == &link->redis->sentinel.link)
        add(words, "; the user needs the channels &%s &%s", link->channel, link->channel2);
    else if (s->redisson)
        add(words, "; the user needs the channels &redisson_*%.24s* &redisson_pawl:*", s->prefix);
    else
        add(words, "; the user needs the channels &%.24s@*%s%.24s%s", s->prefix,
            s->service == REDIS_CLUSTER ? " &{*}" : "",
            s->service == REDIS_CLUSTER ? s->prefix : "",
            s->service == REDIS_CLUSTER ? "@*" : "");
}

void redis_name_right(const redis_link *link, const resp_node *reply, char words[REDIS_WORDS])
{
    const redis_script *script = script_of(reply);
    const char *line = script ? line_of(script, reply) : NULL; /* of the script */

    if (says(reply, "channel"))
        add_channels(words, link);
    else if (says(reply, "access one of the keys") || says(reply, "access a key") ||
             says(reply, "access at least one of the keys") || says(reply, "access the '"))
        add_keys(words, link->settings);
    else if (line)
        add_commands(words, line);
}
