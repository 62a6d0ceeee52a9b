/* SPDX-License-Identifier: Apache-2.0
 *
 * service.c - finds the URL of the service, opens the client, and keeps the library's last warning.
 *
 * With -v the tool prints the library's log. The last warning explains a long wait, or a failure of
 * which only the error code is known. Any thread of the library can log a warning, so `warning` is
 * written and read only under `mutex`.
 */
#include <pthread.h>
#include <pwd.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tool.h"

/* ---- The URL ------------------------------------------------------------------------------- */

/* Read the first line of a file. If a file was named and can't be read, the tool exits: the tool
 * must not use another service, or no password, instead. */
static const char *read_line(const char *path, char *buf, size_t size)
{
    FILE *f = fopen(path, "re");
    bool ok = f && fgets(buf, (int)size, f);
    size_t n = ok ? strcspn(buf, "\r\n") : 0;

    if (f)
        fclose(f);
    if (!n || n == size - 1) {
        say("can't read one line from '%s'", path);
        exit(STATUS_USAGE);
    }
    buf[n] = '\0';
    return buf;
}

/* Read a value from the file that the environment variable names, else from the systemd credential.
 * NULL: neither exists. */
static const char *from_file(const char *variable, const char *credential, char *buf, size_t size)
{
    const char *path = secure_getenv(variable), *folder = secure_getenv("CREDENTIALS_DIRECTORY");
    char whole[4096];

    if (path && *path)
        return read_line(path, buf, size);
    if (!folder || !*folder)
        return NULL;
    snprintf(whole, sizeof whole, "%s/%s", folder, credential);
    return access(whole, F_OK) ? NULL : read_line(whole, buf, size);
}

/* The returned string is valid until the next call. */
const char *service_url(const tool *t)
{
    static char whole[4096], line[4096];
    const char *url = t->url ? t->url : secure_getenv("PAWL_URL");

    if (!url || (!t->url && !*url))
        url = from_file("PAWL_URL_FILE", "pawl.url", line, sizeof line);

    if (!url || (!t->url && !*url))
        url = "local:";
    if (!t->layout)
        return url;
    snprintf(whole, sizeof whole, "%.4000s%clayout=%.60s", url, strchr(url, '?') ? '&' : '?',
             t->layout);
    return whole;
}

/* Look for "//USER:PASSWORD@" in any URL that the text contains, and for password parameters. A '/'
 * in a password should be written as %2F, but a password with a plain '/' is found too. */
bool url_has_password(const char *url)
{
    for (const char *p = url; (p = strstr(p, "://")); p += 3) {
        const char *end = p + 3 + strcspn(p + 3, "?");
        const char *colon = memchr(p + 3, ':', (size_t)(end - p - 3));

        if (colon && memchr(colon, '@', (size_t)(end - colon)))
            return true;
    }
    return strstr(url, "password=") || strstr(url, "passwd=");
}

/* ---- The log ------------------------------------------------------------------------------- */

#define TEXT_MS 200

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t told = PTHREAD_COND_INITIALIZER; /* `failure` has been set */
static char warning[256]; /* this and the next are accessed under `mutex` */
static char failure[256]; /* the last warning about a call */
static atomic_bool loud;

/* A client has several connections, and each one logs the same line about its server. Only the
 * first of these lines is printed. */
static bool is_news(const char *text)
{
    static char lines[8][128]; /* under `mutex` */
    static size_t n;
    bool news = true;

    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < 8; i++)
        news &= strncmp(lines[i], text, sizeof lines[i] - 1) != 0;
    if (news)
        snprintf(lines[n++ % 8], sizeof lines[0], "%s", text);
    pthread_mutex_unlock(&mutex);
    return news;
}

/* The log callback. The text of a failed call is "'NAME': ..." and is kept separately in `failure`,
 * because another thread may log a connection problem before the call returns. */
static void log_line(void *arg, int level, const char *text)
{
    (void)arg;
    if (level <= PAWL_LOG_WARNING && strncmp(text, "lost '", 6)) { /* a loss is not a cause */
        pthread_mutex_lock(&mutex);
        snprintf(warning, sizeof warning, "%s", text);
        if (text[0] == '\'' && strstr(text, "': ")) {
            snprintf(failure, sizeof failure, "%s", text);
            pthread_cond_broadcast(&told);
        }
        pthread_mutex_unlock(&mutex);
    }
    if (loud && (level != PAWL_LOG_INFO || is_news(text)))
        say("%s", text);
}

const char *last_warning(char *buf, size_t size)
{
    pthread_mutex_lock(&mutex);
    snprintf(buf, size, "%s", warning);
    pthread_mutex_unlock(&mutex);
    return buf;
}

/* The thread that logs the text may come after the thread that runs the callback: wait a moment. */
const char *last_failure(char *buf, size_t size)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += TEXT_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&mutex);
    while (!failure[0] && !pthread_cond_timedwait(&told, &mutex, &until))
        ;
    snprintf(buf, size, "%s", failure[0] ? failure : warning);
    pthread_mutex_unlock(&mutex);
    return buf;
}

/* ---- The client ---------------------------------------------------------------------------- */

/* Set by client_try when a client has been opened; several threads of `pawl serve` and `pawl bench`
 * open clients. */
enum { NOT_OPENED, OPENED_SERVER, OPENED_HERE };
static atomic_int service;

bool service_is_here(void)
{
    return service == OPENED_HERE;
}

bool service_was_opened(void)
{
    return service != NOT_OPENED;
}

int client_try(const tool *t, pawl_client **ret, pawl_client_options *options, pawl_error *err)
{
    const char *url = service_url(t);
    pawl_client_options none = {0};
    char password[1024];
    int code;

    if (!options)
        options = &none;
    options->size = sizeof *options;
    loud = t->verbose > 0;
    options->log = log_line;
    if (!secure_getenv("PAWL_PASSWORD"))
        options->password = from_file("PAWL_PASSWORD_FILE", "pawl.password", password,
                                      sizeof password);
    if (loud)
        options->log_level = t->verbose > 1 ? PAWL_LOG_DEBUG : PAWL_LOG_INFO;
    code = pawl_open(ret, url, options, err);
    options->password = NULL;
    explicit_bzero(password, sizeof password);
    if (!code)
        service = pawl_client_can(*ret, PAWL_CAN_BE_DOWN) ? OPENED_SERVER : OPENED_HERE;
    return code;
}

int client_open(const tool *t, pawl_client **ret, pawl_client_options *options)
{
    pawl_error err = {0};

    err.code = client_try(t, ret, options, &err);
    return err.code ? failed(t, "can't open the service", &err) : 0;
}

const char *operator_name(void)
{
    static char name[64]; /* set by the first call, before other threads exist */
    const char *sudo = getenv("SUDO_USER");
    const struct passwd *user;

    if (name[0])
        return name;
    user = getpwuid(getuid());
    if (sudo && *sudo && !getuid())
        snprintf(name, sizeof name, "%s", sudo);
    else if (user)
        snprintf(name, sizeof name, "%s", user->pw_name);
    else
        snprintf(name, sizeof name, "uid %lld", (long long)getuid());
    return name;
}
