/* SPDX-License-Identifier: Apache-2.0
 *
 * actor.c - actor URL [LABEL]: a process that calls libpawl as lines on its standard input tell, so
 * that tests in any language can drive real processes.
 *
 * In:   VERB [ID] [ARGUMENT ...]      words with a space between; %XX in a NAME stands for a byte
 * Out:  VERB ID CODE NS [KEY=VALUE ...] [: WORDS OF THE ERROR]
 *
 * CODE is PAWL_OK or the error's name, NS the boot-time clock in ns when the result was known. ID
 * is any word that the caller chooses; later lines name the object by this ID. "-" stands for the
 * ID if the verb has none. The first output line is about `open`; if opening fails, the actor ends.
 *
 *   lock ID NAME [kind=mutex|fair|read|write|spin] [lease=MS] [max_hold=MS] [at_least=MS]
 *                [thread=1]     the thread is the owner, so that a writer can become a reader
 *   sem ID NAME [permits=N] [lease=MS]            latch ID NAME           free ID
 *   acquire ID WAIT_MS    a lock, asynchronously: answered when the acquire ends (token= valid=)
 *   release ID            a lock, asynchronously
 *   take ID WAIT_MS [PERMITS]    lock, semaphore or latch, blocking; errors have words
 *   try ID [PERMITS]             take ID 0
 *   drop ID [PERMITS]            release, blocking
 *   renew ID MS      break ID      cancel ID (n=)
 *   valid ID, held ID, token ID  no I/O (valid= held= token=)
 *   available ID (n=)            of a semaphore
 *   set ID COUNT, down ID, count ID (n=)      of a latch
 *   show NAME, ls [GLOB]         a line "row NAME ..." for each row, then the answer
 *   stats                        every counter by its name
 *   metrics prometheus|openmetrics FILE       pawl_metrics, into the file; the format is the ID
 *   sync                         answers when all callbacks that were due have run
 *   stopself ID                  SIGSTOP; after SIGCONT the actor first asks for valid and held
 *   ticks MS, late               wake up every MS from now on; the largest delay so far (us=)
 *   become UID, chroot DIR       change the user id or root folder of this process
 *   fork ID                      a child tries the lock and closes the client (n=0: was refused)
 *   close                        pawl_close, answer, end        die      SIGKILL
 *
 * The end of the input means `close`. Some lines come without a request: "lost ID PAWL_ELOST NS"
 * for a lost lock, and, if ACTOR_LOG is in the environment, "log - PAWL_OK NS : WORDS" for each
 * warning.
 *
 * Every lock belongs to its handle (but see thread=1). One thread runs one loop over the input and
 * pawl_client_fd(); callbacks run where the loop calls pawl_client_process(). The input is not read
 * during a blocking verb.
 */
#include "actor.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

pawl_client *client;

static int64_t tick_ns, latest_ns;

int64_t boot_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- lines out ------------------------------------------------------------------------------- */

void answer(const char *verb, const char *id, int code, const pawl_error *err, const char *format,
            ...)
{
    va_list args;

    printf("%s %s %s %lld", verb, id, code ? pawl_errname(code) : "PAWL_OK", (long long)boot_ns());
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    if (code && err && err->text[0])
        printf(" : %s", err->text);
    putchar('\n');
    fflush(stdout);
}

const char *as_word(const char *text)
{
    static char buffers[8][1024];
    static int turn;
    char *out = buffers[turn++ % 8], *p = out;

    for (; *text && p < out + sizeof buffers[0] - 4; text++)
        if ((unsigned char)*text <= ' ' || *text == '%')
            p += snprintf(p, 4, "%%%02X", (unsigned)(unsigned char)*text);
        else
            *p++ = *text;
    *p = 0;
    return out;
}

void from_word(char *word)
{
    char hex[3] = {0}, *out = word;

    for (; *word; word++)
        if (*word == '%' && word[1] && word[2]) {
            hex[0] = word[1];
            hex[1] = word[2];
            *out++ = (char)strtol(hex, NULL, 16);
            word += 2;
        } else {
            *out++ = *word;
        }
    *out = 0;
}

/* ---- lines in -------------------------------------------------------------------------------- */

static _Noreturn void finish(void)
{
    int code = pawl_close(client);

    client = NULL;
    answer("close", "-", code, NULL, "%s", "");
    free_objects();
    exit(0);
}

static void do_line(char *line)
{
    char *words[MAX_WORDS], *rest = line;
    int n = 0;

    while (n < MAX_WORDS && (words[n] = strsep(&rest, " ")))
        n += *words[n] != 0;
    if (n == 0)
        return;
    if (!strcmp(words[0], "close")) {
        finish();
    } else if (!strcmp(words[0], "ticks") && n == 2) {
        tick_ns = atoll(words[1]) * 1000000;
        latest_ns = 0;
        answer("ticks", "-", 0, NULL, "%s", "");
    } else if (!strcmp(words[0], "late")) {
        answer("late", "-", 0, NULL, " us=%lld", (long long)latest_ns / 1000);
    } else if (!do_verb(n, words)) {
        answer(words[0], n > 1 ? words[1] : "-", PAWL_EINVAL, NULL, " : no such verb or object");
    }
}

/* Read and carry out the lines that have arrived. Returns false at the end of the input, and if a
 * line is longer than the buffer. */
static bool read_lines(void)
{
    static char buffer[65536];
    static size_t have;
    ssize_t got = read(STDIN_FILENO, buffer + have, sizeof buffer - 1 - have);
    char *end, *line = buffer;

    if (got < 0)
        return errno == EINTR || errno == EAGAIN;
    if (got == 0)
        return false;
    have += (size_t)got;
    buffer[have] = 0;
    while ((end = strchr(line, '\n'))) {
        *end = 0;
        do_line(line);
        line = end + 1;
    }
    have -= (size_t)(line - buffer);
    memmove(buffer, line, have);
    return have < sizeof buffer - 1;
}

/* ---- the loop -------------------------------------------------------------------------------- */

static void loop(int fd)
{
    struct pollfd fds[2] = {{STDIN_FILENO, POLLIN, 0}, {fd, POLLIN, 0}};
    int64_t began, late;
    int n;

    for (;;) {
        began = boot_ns();
        n = poll(fds, 2, tick_ns ? (int)(tick_ns / 1000000) : -1);
        late = boot_ns() - began - tick_ns;
        if (tick_ns && n == 0 && late > latest_ns)
            latest_ns = late;
        if (n > 0 && fds[1].revents)
            pawl_client_process(client);
        if (n > 0 && fds[0].revents && !read_lines())
            finish();
    }
}

static void log_line(void *arg, int level, const char *text)
{
    (void)arg, (void)level;
    printf("log - PAWL_OK %lld : %s\n", (long long)boot_ns(), text);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    pawl_client_options options = {.size = sizeof options, .label = argc > 2 ? argv[2] : NULL,
                                   .log = getenv("ACTOR_LOG") ? log_line : NULL};
    pawl_error err = {0};
    int code, fd;

    if (argc < 2) {
        fprintf(stderr, "usage: actor URL [LABEL]\n");
        return 64;
    }
    code = pawl_open(&client, argv[1], &options, &err);
    fd = code ? code : pawl_client_fd(client);
    if (!code && fd < 0)
        snprintf(err.text, sizeof err.text, "pawl_client_fd: %s", pawl_strerror(fd));
    answer("open", "-", fd < 0 ? fd : 0, &err, " pid=%d", (int)getpid());
    if (fd < 0)
        return 1;
    loop(fd);
}
