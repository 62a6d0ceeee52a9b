/* SPDX-License-Identifier: Apache-2.0
 *
 * connect.c - connecting, in a thread of its own.
 *
 * libmariadb resolves the host name in a blocking call, and checks a certificate against the host
 * name from its caller; so Pawl can't resolve the name before. The thread resolves, connects, and
 * speaks TLS if the URL asks for TLS; the link does not wait for the thread. Thread and link share
 * a box with a mutex and two references. The thread puts the connection into the box and, if the
 * link still uses the box, wakes the link. The side that leaves last closes the connection in the
 * box. A finished thread is joined, so that it is not still running destructors when the program
 * ends.
 *
 * On first use the library sets SIGPIPE to ignored for the whole process; start_library restores
 * the program's setting. A program may also end while the thread connects, and OpenSSL must not
 * clean up while the thread still uses OpenSSL. So start_library turns the clean-up off, which
 * works unless the program has used OpenSSL before.
 *
 * OpenSSL has internal locks, and a child that was forked while this thread held one would wait for
 * that lock for ever. So the process makes one connection at a time, under a mutex that is also
 * held around fork(): a fork waits until the connection is made, at most for the timeout.
 */
#include <fcntl.h>
#include <openssl/crypto.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "mysql.h"

struct my_box {
    pthread_mutex_t mutex;
    int refs;
    pawl_wake *wake; /* NULL: the link has given up */
    void (*send)(pawl_wake *);
    bool finished;
    MYSQL *mysql;
    unsigned error;
    char words[SQL_WORDS];
    sql_settings s;  /* copies */
    unsigned seconds;
    unsigned long flags;
};

static void start_library(void)
{
    struct sigaction before;
    bool known = !sigaction(SIGPIPE, NULL, &before); /* as it was */

    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
    mysql_library_init(0, NULL, NULL);
    if (known)
        sigaction(SIGPIPE, &before, NULL); /* as it was */
}

static pthread_mutex_t connecting = PTHREAD_MUTEX_INITIALIZER;

void my_library(pawl_env *env)
{
    static bool started; /* protected by `connecting` */

    env->fork_mutex_add(&connecting);
    pthread_mutex_lock(&connecting);
    if (!started)
        start_library();
    started = true;
    pthread_mutex_unlock(&connecting);
}

static void leave(struct my_box *box)
{
    int refs = --box->refs;
    my_hushed hushed;

    pthread_mutex_unlock(&box->mutex);
    if (refs)
        return;
    my_hush(&hushed);
    if (box->mysql)
        mysql_close(box->mysql);
    my_unhush(&hushed);
    sql_settings_free(&box->s);
    pthread_mutex_destroy(&box->mutex);
    free(box);
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* The library accepts a server without TLS even if TLS is enforced. */
static bool is_plain(MYSQL *mysql, struct my_box *box)
{
    if (box->s.tls < SQL_TLS_REQUIRE || mysql_get_ssl_cipher(mysql))
        return false;
    box->error = 2026;
    snprintf(box->words, sizeof box->words, "the server has no TLS, which the URL asks for");
    mysql_close(mysql);
    return true;
}

/* For a socket the host is named, too: the library would use a host from an option file. */
static bool connect_with(MYSQL *mysql, struct my_box *box)
{
    const sql_settings *s = &box->s;
    const net_address *host = &s->hosts.list[0];
    bool local = host->host[0] == '/';

    return mysql_real_connect(mysql, local ? "localhost" : host->host, s->login.user,
                              s->login.password, s->db, host->port, local ? host->host : NULL,
                              box->flags);
}

static MYSQL *connect_now(struct my_box *box)
{
    MYSQL *mysql = mysql_init(NULL);
    bool connected;
    int fd;

    if (!mysql) {
        snprintf(box->words, sizeof box->words, "out of memory");
        return NULL;
    }
    fd = my_set_options(mysql, &box->s, box->seconds);
    connected = connect_with(mysql, box);
    if (fd >= 0)
        close(fd);
    if (connected) {
        if (is_plain(mysql, box))
            return NULL;
        fcntl(mysql_get_socket(mysql), F_SETFD, FD_CLOEXEC);
        return mysql;
    }
    box->error = mysql_errno(mysql);
    snprintf(box->words, sizeof box->words, "%s", mysql_error(mysql));
    mysql_close(mysql);
    return NULL;
}

static void *connector(void *arg)
{
    struct my_box *box = arg;
    MYSQL *mysql;

    pthread_mutex_lock(&connecting);
    mysql = connect_now(box);
    pthread_mutex_unlock(&connecting);
    pthread_mutex_lock(&box->mutex);
    box->mysql = mysql;
    box->finished = true;
    if (box->wake)
        box->send(box->wake);
    leave(box);
    return NULL;
}

/* The thread blocks all signals, which are for the program's threads. */
static int start_thread(struct my_box *box, pthread_t *thread)
{
    sigset_t all, old;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    error = pthread_create(thread, NULL, connector, box);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return error ? -1 : 0;
}

/* ---- the link's side ------------------------------------------------------------------------- */

static void woken(pawl_wake *wake)
{
    sql_link *link = wake->arg;
    my *m = link->conn;
    char words[SQL_WORDS];
    MYSQL *mysql;
    unsigned error;
    bool finished;

    pthread_mutex_lock(&m->box->mutex);
    finished = m->box->finished;
    mysql = m->box->mysql;
    error = m->box->error;
    memcpy(words, m->box->words, sizeof words);
    if (finished)
        m->box->mysql = NULL;
    pthread_mutex_unlock(&m->box->mutex);
    if (!finished)
        return;
    pthread_join(m->thread, NULL); /* the thread is about to return */
    m->joined = true;
    my_connect_cancel(link);
    my_connected(link, mysql, error, words);
}

static char *copy(const char *text, bool *failed)
{
    char *ret = text ? strdup(text) : NULL;

    *failed |= text && !ret;
    return ret;
}

/* Copy the settings, with one host: the host to connect to. */
static bool copy_settings(sql_settings *to, const sql_settings *from, const net_address *host)
{
    bool failed = false;

    *to = (sql_settings){.tls = from->tls, .cleartext = from->cleartext,
                         .hosts.list = calloc(1, sizeof *host)};
    if (!to->hosts.list)
        return false;
    to->hosts.n = 1;
    to->hosts.list[0] = *host;
    to->hosts.list[0].host = copy(host->host, &failed);
    to->db = copy(from->db, &failed);
    to->login.user = copy(from->login.user, &failed);
    to->login.password = copy(from->login.password, &failed);
    to->files.cafile = copy(from->files.cafile, &failed);
    to->files.cert = copy(from->files.cert, &failed);
    to->files.key = copy(from->files.key, &failed);
    return !failed;
}

int my_connect(sql_link *link)
{
    my *m = link->conn;
    struct my_box *box = calloc(1, sizeof *box);

    if (!box)
        return PAWL_ENOMEM;
    pthread_mutex_init(&box->mutex, NULL);
    box->refs = 2;
    box->wake = &m->wake;
    box->send = link->env->wake_send;
    box->seconds = (unsigned)((link->env->timeout_ms + 999) / 1000);
    box->flags = CLIENT_MULTI_RESULTS;
    if (link->sql->driver == &my_session_driver)
        box->flags |= CLIENT_MULTI_STATEMENTS;
    m->box = box;
    m->wake = (pawl_wake){.fn = woken, .arg = link};
    link->env->wake_begin(link->env, &m->wake);
    if (copy_settings(&box->s, &link->sql->settings, sql_link_host(link)) &&
        !start_thread(box, &m->thread))
        return 0;
    m->joined = true;
    box->refs = 1;
    my_connect_cancel(link);
    return PAWL_ENOMEM;
}

void my_connect_cancel(sql_link *link)
{
    my *m = link->conn;

    if (!m->box)
        return;
    if (!m->joined)
        pthread_detach(m->thread);
    pthread_mutex_lock(&m->box->mutex);
    m->box->wake = NULL;
    leave(m->box);
    m->box = NULL;
    link->env->wake_end(link->env, &m->wake);
}
