/* SPDX-License-Identifier: Apache-2.0
 *
 * options.c - the options of a connection: those of the URL, and those of option files (my.cnf).
 *
 * libmariadb reads option files inside mysql_real_connect, after all calls of mysql_optionsv, so a
 * line of a file would replace the setting of the URL: ssl-verify-server-cert=0 would turn off the
 * check that sslmode=verify-full asks for. The library also reads a file instead of its usual
 * files, and such a file may include others; the last line counts. So Pawl writes a file in memory
 * that first includes the usual files, and then repeats the settings that a file must not change.
 * The file in memory has a path below /proc; without /proc no option files are read.
 *
 * Files may add what the URL leaves open: user, password, and TLS that is stricter than the URL's.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mysql.h"

#define SAFE_METHODS "mysql_native_password,client_ed25519"
#define FIRST_METHOD "mysql_native_password"
#define PACKET_MAX ((size_t)16 << 20)
#define FILE_MAX 65536

static bool is_local(const sql_settings *s)
{
    return s->hosts.list[0].host[0] == '/';
}

/* The server may ask for the password by any method, and most methods reveal the password. Unless
 * the server has proved its identity, only methods that answer a challenge are allowed. */
static bool restricts_methods(const sql_settings *s)
{
    return s->tls < SQL_TLS_CHAIN && !s->cleartext && !is_local(s);
}

/* ---- the file in memory ---------------------------------------------------------------------- */

typedef struct option_file {
    char text[FILE_MAX];
    size_t used;
    bool full;
} option_file;

__attribute__((format(printf, 2, 3))) static void add(option_file *f, const char *format, ...)
{
    size_t room = sizeof f->text - f->used;
    va_list args;
    int length;

    va_start(args, format);
    length = vsnprintf(f->text + f->used, room, format, args);
    va_end(args);
    f->full |= length < 0 || (size_t)length >= room;
    f->used += f->full ? 0 : (size_t)length;
}

static void include(option_file *f, const char *folder, const char *name)
{
    if (folder && !strpbrk(folder, "\r\n"))
        add(f, "!include %s/%s\n", folder, name);
}

/* The usual files, in the library's order. Files that are missing are skipped. */
static void include_files(option_file *f)
{
    const char *home = getenv("MARIADB_HOME");

    include(f, "/etc", "my.cnf");
    include(f, "/etc/mysql", "my.cnf");
    include(f, home ? home : getenv("MYSQL_HOME"), "my.cnf");
    include(f, getenv("HOME"), ".my.cnf");
}

static void add_path(option_file *f, const char *key, const char *path)
{
    add(f, "%s=\"", key);
    for (const char *c = path; *c; c++)
        if (*c == '\n' || *c == '\r')
            add(f, "%s", *c == '\n' ? "\\n" : "\\r");
        else
            add(f, "%s%c", *c == '\\' ? "\\" : "", *c);
    add(f, "\"\n");
}

/* An empty value unsets an option. */
static void add_tls(option_file *f, const sql_settings *s)
{
    if (s->tls != SQL_TLS_DISABLE)
        add(f, "ssl-enforce=1\n");
    if (s->tls < SQL_TLS_REQUIRE)
        return;
    add(f, "ssl-cipher=\ntls-version=\n");
    if (s->tls >= SQL_TLS_CHAIN)
        add(f, "ssl-verify-server-cert=1\nssl-fp=\nssl-fp-list=\n");
    if (s->files.cafile) {
        add_path(f, "ssl-ca", s->files.cafile);
        add(f, "ssl-capath=\n");
    }
    if (s->files.cert) {
        add_path(f, "ssl-cert", s->files.cert);
        add_path(f, "ssl-key", s->files.key);
    }
}

static void fill(option_file *f, const sql_settings *s, unsigned protocol, unsigned seconds)
{
    include_files(f);
    add(f, "[client]\nprotocol=%u\nconnect-timeout=%u\nmax-allowed-packet=%zu\n"
        "default-character-set=utf8mb4\nreconnect=0\n", protocol, seconds, PACKET_MAX);
    if (restricts_methods(s))
        add(f, "default-auth=" FIRST_METHOD "\nrestricted-auth=" SAFE_METHODS "\n");
    add_tls(f, s);
}

/* Returns the descriptor of the file, to be closed after connecting; -1: there is none, and no
 * option files are read. */
static int read_files(MYSQL *mysql, const sql_settings *s, unsigned protocol, unsigned seconds)
{
    int fd = memfd_create("pawl-my.cnf", MFD_CLOEXEC);
    option_file *f = calloc(1, sizeof *f);
    char path[40];

    if (f)
        fill(f, s, protocol, seconds);
    if (f && fd >= 0 && !f->full && write(fd, f->text, f->used) == (ssize_t)f->used) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        mysql_optionsv(mysql, MYSQL_READ_DEFAULT_FILE, path);
        mysql_optionsv(mysql, MYSQL_READ_DEFAULT_GROUP, "pawl");
    }
    free(f);
    return fd;
}

/* ---- LOAD DATA LOCAL ------------------------------------------------------------------------- */

/* A server may answer any statement by a request for a file of the client. An option file could
 * allow that, so there is also a handler that has no files. */
static int no_file(void **handle, const char *name, void *arg)
{
    (void)name;
    (void)arg;
    *handle = NULL;
    return 1;
}

static int no_bytes(void *handle, char *bytes, unsigned length)
{
    (void)handle;
    (void)bytes;
    (void)length;
    return -1;
}

static void no_end(void *handle)
{
    (void)handle;
}

static int no_file_error(void *handle, char *text, unsigned length)
{
    (void)handle;
    snprintf(text, length, "the server asks for a file of this client");
    return 2027; /* malformed packet */
}

static void refuse_files(MYSQL *mysql)
{
    unsigned off = 0;

    mysql_optionsv(mysql, MYSQL_OPT_LOCAL_INFILE, &off);
    mysql_set_local_infile_handler(mysql, no_file, no_bytes, no_end, no_file_error, NULL);
}

/* ---- all options ----------------------------------------------------------------------------- */

/* With MYSQL_OPT_SSL_ENFORCE the library uses TLS if the server offers it, without that option it
 * never does; is_plain() in connect.c enforces TLS. */
static void set_tls(MYSQL *mysql, const sql_settings *s)
{
    my_bool verify = s->tls >= SQL_TLS_CHAIN, use = 1;

    if (s->tls == SQL_TLS_DISABLE)
        return;
    mysql_ssl_set(mysql, s->files.key, s->files.cert, s->files.cafile, NULL, NULL);
    mysql_optionsv(mysql, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &verify);
    mysql_optionsv(mysql, MYSQL_OPT_SSL_ENFORCE, &use);
}

int my_set_options(MYSQL *mysql, const sql_settings *s, unsigned seconds)
{
    unsigned protocol = is_local(s) ? MYSQL_PROTOCOL_SOCKET : MYSQL_PROTOCOL_TCP;
    size_t packet = PACKET_MAX;

    mysql_optionsv(mysql, MYSQL_OPT_NONBLOCK, NULL);
    mysql_optionsv(mysql, MYSQL_OPT_PROTOCOL, &protocol);
    mysql_optionsv(mysql, MYSQL_OPT_CONNECT_TIMEOUT, &seconds);
    mysql_optionsv(mysql, MYSQL_OPT_READ_TIMEOUT, &seconds);
    mysql_optionsv(mysql, MYSQL_OPT_WRITE_TIMEOUT, &seconds);
    mysql_optionsv(mysql, MYSQL_OPT_MAX_ALLOWED_PACKET, &packet);
    mysql_optionsv(mysql, MYSQL_SET_CHARSET_NAME, "utf8mb4");
    mysql_options4(mysql, MYSQL_OPT_CONNECT_ATTR_ADD, "program_name", "pawl");
    set_tls(mysql, s);
    if (restricts_methods(s)) {
        mysql_optionsv(mysql, MYSQL_DEFAULT_AUTH, FIRST_METHOD);
        mysql_optionsv(mysql, MARIADB_OPT_RESTRICTED_AUTH, SAFE_METHODS);
    }
    refuse_files(mysql);
    return read_files(mysql, s, protocol, seconds);
}
