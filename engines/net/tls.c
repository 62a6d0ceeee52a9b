/* SPDX-License-Identifier: Apache-2.0
 *
 * tls.c - TLS over a non-blocking socket.
 *
 * By default the server's chain is verified against cafile (or the system's authorities), and the
 * server's name against the URL's host. OpenSSL reads and writes through a BIO of our own, because
 * OpenSSL's socket BIO would raise SIGPIPE in the program when the server is gone.
 *
 * OpenSSL has internal locks. If a process forks while another thread holds such a lock, the child
 * would wait for the lock forever when opening a client of its own. So all clients of the process
 * take one mutex around their calls, and fork() runs with this mutex held.
 *
 * Certificates are replaced while programs run. Each new connection checks whether one of the files
 * has changed (device, inode, size, times), and then reads all files again. Files that can't be
 * used, for instance a new certificate whose key does not exist yet, are logged and tried again
 * with the next connection; until then the old certificates are used. An open connection keeps the
 * certificates that it has.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net.h"

static pthread_mutex_t openssl = PTHREAD_MUTEX_INITIALIZER;

struct net_tls {
    SSL *ssl;
    int fd;
    bool wants_write;
};

/* ---- the BIO --------------------------------------------------------------------------------- */

static bool later(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

static int bio_read(BIO *bio, char *data, int length)
{
    net_tls *tls = BIO_get_data(bio);
    ssize_t n = recv(tls->fd, data, (size_t)length, 0);

    BIO_clear_retry_flags(bio);
    if (n < 0 && later())
        BIO_set_retry_read(bio);
    return (int)n;
}

static int bio_write(BIO *bio, const char *data, int length)
{
    net_tls *tls = BIO_get_data(bio);
    ssize_t n = send(tls->fd, data, (size_t)length, MSG_NOSIGNAL);

    BIO_clear_retry_flags(bio);
    if (n < 0 && later())
        BIO_set_retry_write(bio);
    return (int)n;
}

static long bio_control(BIO *bio, int command, long number, void *data)
{
    (void)bio;
    (void)number;
    (void)data;
    return command == BIO_CTRL_FLUSH ? 1 : 0;
}

static BIO_METHOD *bio_method(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK | BIO_get_new_index(), "pawl socket");

    if (!method)
        return NULL;
    BIO_meth_set_read(method, bio_read);
    BIO_meth_set_write(method, bio_write);
    BIO_meth_set_ctrl(method, bio_control);
    return method;
}

/* ---- the context of a client ----------------------------------------------------------------- */

/* Identifies a version of a file. */
struct stamp {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec modified, changed;
};

enum { CAFILE, CERT, KEY, FILES };

struct context {
    SSL_CTX *ssl;
    BIO_METHOD *method;
    pawl_env *env;
    net_tls_settings settings; /* with copies of the file names */
    struct stamp stamps[FILES];
};

#define SYSTEM "the system"

static int failed(pawl_error *err, const char *what, const char *file)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());

    if (access(file, R_OK) && strcmp(file, SYSTEM)) /* OpenSSL would only say "system lib" */
        reason = strerror(errno);
    return pawl_error_set(err, PAWL_EINVAL, "%s '%.100s': %.80s", what, file,
                          reason ? reason : "can't be used");
}

static int load_files(SSL_CTX *ssl, const net_tls_settings *s, pawl_error *err)
{
    if (s->cafile && !SSL_CTX_load_verify_locations(ssl, s->cafile, NULL))
        return failed(err, "the certificates of cafile", s->cafile);
    if (!s->cafile && !SSL_CTX_set_default_verify_paths(ssl))
        return failed(err, "the certificates of", SYSTEM);
    if (s->cert && SSL_CTX_use_certificate_chain_file(ssl, s->cert) != 1)
        return failed(err, "the certificate cert", s->cert);
    if (s->key && SSL_CTX_use_PrivateKey_file(ssl, s->key, SSL_FILETYPE_PEM) != 1)
        return failed(err, "the private key", s->key);
    if (s->key && SSL_CTX_check_private_key(ssl) != 1)
        return failed(err, "the certificate and the private key don't belong together:", s->key);
    return 0;
}

/* Write the list in the wire format: each name follows its length. */
static bool offer(SSL_CTX *ssl, const char *protocol)
{
    unsigned char list[32];
    size_t length = strlen(protocol);

    if (length + 1 > sizeof list)
        return false;
    list[0] = (unsigned char)length;
    memcpy(list + 1, protocol, length);
    return SSL_CTX_set_alpn_protos(ssl, list, (unsigned)length + 1) == 0;
}

static int make_context(SSL_CTX **ret, const net_tls_settings *s, pawl_error *err)
{
    SSL_CTX *ssl;

    ERR_clear_error();
    ssl = *ret = SSL_CTX_new(TLS_client_method());
    if (!ssl)
        return pawl_error_set(err, PAWL_ENOMEM, "can't set up TLS");
    SSL_CTX_set_min_proto_version(ssl, TLS1_2_VERSION);
    SSL_CTX_set_options(ssl, SSL_OP_NO_RENEGOTIATION); /* so that writes never have to read */
    SSL_CTX_set_mode(ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_verify(ssl, s->verify == NET_VERIFY_NONE ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, NULL);
    if (s->alpn && !offer(ssl, s->alpn))
        return pawl_error_set(err, PAWL_ENOMEM, "can't set up TLS");
    return load_files(ssl, s, err);
}

/* Without cafile, check the system's file of authorities; OpenSSL itself reads the system's
 * folder. */
static void take_stamps(const net_tls_settings *s, struct stamp stamps[FILES])
{
    const char *given = getenv(X509_get_default_cert_file_env());
    const char *files[FILES] = {s->cafile, s->cert, s->key};

    if (!s->cafile)
        files[CAFILE] = given ? given : X509_get_default_cert_file();
    memset(stamps, 0, FILES * sizeof *stamps);
    for (size_t i = 0; i < FILES; i++) {
        struct stat st;

        if (!files[i] || stat(files[i], &st))
            continue;
        stamps[i].device = st.st_dev;
        stamps[i].inode = st.st_ino;
        stamps[i].size = st.st_size;
        stamps[i].modified = st.st_mtim;
        stamps[i].changed = st.st_ctim;
    }
}

/* If the files have changed, read them; `err` says why they can't be used. The stamps are taken
 * before reading: a change during the read is noticed next time. */
static void read_again(struct context *context, pawl_error *err)
{
    struct stamp stamps[FILES];
    SSL_CTX *ssl = NULL;

    take_stamps(&context->settings, stamps);
    if (!memcmp(stamps, context->stamps, sizeof stamps))
        return;
    if (make_context(&ssl, &context->settings, err)) {
        SSL_CTX_free(ssl);
        return;
    }
    SSL_CTX_free(context->ssl); /* connections have their own references */
    context->ssl = ssl;
    memcpy(context->stamps, stamps, sizeof stamps);
}

static int copy_settings(net_tls_settings *to, const net_tls_settings *from, pawl_error *err)
{
    int code = 0;

    *to = (net_tls_settings){.alpn = from->alpn, .verify = from->verify};
    if (from->cafile)
        code = net_copy(&to->cafile, from->cafile, err);
    if (!code && from->cert)
        code = net_copy(&to->cert, from->cert, err);
    if (!code && from->key)
        code = net_copy(&to->key, from->key, err);
    return code;
}

int net_tls_context(void **ret, pawl_env *env, const net_tls_settings *s, pawl_error *err)
{
    struct context *context = calloc(1, sizeof *context);
    int code;

    *ret = context;
    if (!context)
        return pawl_error_set(err, PAWL_ENOMEM, "out of memory");
    context->env = env;
    code = copy_settings(&context->settings, s, err);
    if (code)
        return code;
    env->fork_mutex_add(&openssl);
    pthread_mutex_lock(&openssl);
    take_stamps(&context->settings, context->stamps);
    context->method = bio_method();
    code = context->method ? make_context(&context->ssl, &context->settings, err)
                           : pawl_error_set(err, PAWL_ENOMEM, "can't set up TLS");
    pthread_mutex_unlock(&openssl);
    return code;
}

void net_tls_context_free(void *arg)
{
    struct context *context = arg;

    if (!context)
        return;
    pthread_mutex_lock(&openssl);
    SSL_CTX_free(context->ssl);
    BIO_meth_free(context->method);
    pthread_mutex_unlock(&openssl);
    net_tls_settings_free(&context->settings);
    free(context);
}

/* ---- one connection -------------------------------------------------------------------------- */

static bool set_name(SSL *ssl, const net_tls_settings *s)
{
    unsigned char address[16];
    bool numeric = inet_pton(AF_INET, s->host, address) == 1 ||
                   inet_pton(AF_INET6, s->host, address) == 1;

    if (!numeric && !SSL_set_tlsext_host_name(ssl, s->host))
        return false;
    if (s->verify != NET_VERIFY_FULL)
        return true;
    if (numeric)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), s->host) == 1;
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(ssl, s->host) == 1;
}

static bool make_session(net_tls *tls, const struct context *context, const net_tls_settings *s)
{
    BIO *bio;

    tls->ssl = SSL_new(context->ssl);
    bio = tls->ssl && set_name(tls->ssl, s) ? BIO_new(context->method) : NULL;
    if (!bio)
        return false;
    BIO_set_data(bio, tls);
    BIO_set_init(bio, 1);
    SSL_set_bio(tls->ssl, bio, bio);
    SSL_set_connect_state(tls->ssl);
    return true;
}

net_tls *net_tls_new(void *arg, const net_tls_settings *s, int fd)
{
    struct context *context = arg;
    net_tls *tls = calloc(1, sizeof *tls);
    pawl_error err = {0};
    bool made;

    if (!tls)
        return NULL;
    tls->fd = fd;
    pthread_mutex_lock(&openssl);
    read_again(context, &err);
    made = make_session(tls, context, s);
    pthread_mutex_unlock(&openssl);
    if (err.code)
        context->env->log(context->env, PAWL_LOG_WARNING, "the TLS files have changed and can't be "
                          "used, so the old ones are: %s", err.text);
    if (made)
        return tls;
    net_tls_free(tls);
    return NULL;
}

void net_tls_free(net_tls *tls)
{
    if (!tls)
        return;
    pthread_mutex_lock(&openssl);
    SSL_free(tls->ssl);
    pthread_mutex_unlock(&openssl);
    free(tls);
}

static bool unknown_authority(long verified)
{
    return verified == X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT ||
           verified == X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN ||
           verified == X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY ||
           verified == X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE;
}

static int why(net_tls *tls, int result, const char *what, char words[NET_WORDS])
{
    int error = SSL_get_error(tls->ssl, result);
    long verified = SSL_get_verify_result(tls->ssl);
    const char *reason = ERR_reason_error_string(ERR_peek_error());

    tls->wants_write = error == SSL_ERROR_WANT_WRITE;
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
        return NET_IO_AGAIN;
    if (error == SSL_ERROR_ZERO_RETURN || (error == SSL_ERROR_SYSCALL && !reason))
        return NET_IO_CLOSED;
    if (verified != X509_V_OK && SSL_get_verify_mode(tls->ssl) != SSL_VERIFY_NONE)
        snprintf(words, NET_WORDS, "TLS: the server's certificate is not accepted: %.90s%s",
                 X509_verify_cert_error_string(verified),
                 unknown_authority(verified) ? "; name its authority by cafile=" : "");
    else
        snprintf(words, NET_WORDS, "TLS: %s failed: %.90s%s", what, reason ? reason : "no reason",
                 reason && strstr(reason, "wrong version") ? "; does this port serve TLS?" : "");
    return NET_IO_FAILED;
}

int net_tls_handshake(net_tls *tls, char words[NET_WORDS])
{
    int result;

    pthread_mutex_lock(&openssl);
    ERR_clear_error();
    result = SSL_do_handshake(tls->ssl);
    result = result == 1 ? 0 : why(tls, result, "the handshake", words);
    pthread_mutex_unlock(&openssl);
    tls->wants_write &= result == NET_IO_AGAIN;
    return result;
}

ptrdiff_t net_tls_read(net_tls *tls, char *data, size_t length, char words[NET_WORDS])
{
    size_t n = 0;
    int result;

    pthread_mutex_lock(&openssl);
    ERR_clear_error();
    result = SSL_read_ex(tls->ssl, data, length, &n);
    result = result == 1 ? 0 : why(tls, result, "reading", words);
    pthread_mutex_unlock(&openssl);
    tls->wants_write &= result == NET_IO_AGAIN;
    return result ? result : (ptrdiff_t)n;
}

ptrdiff_t net_tls_write(net_tls *tls, const char *data, size_t length, char words[NET_WORDS])
{
    size_t n = 0;
    int result;

    pthread_mutex_lock(&openssl);
    ERR_clear_error();
    result = SSL_write_ex(tls->ssl, data, length, &n);
    result = result == 1 ? 0 : why(tls, result, "writing", words);
    pthread_mutex_unlock(&openssl);
    tls->wants_write &= result == NET_IO_AGAIN;
    return result ? result : (ptrdiff_t)n;
}

bool net_tls_wants_write(const net_tls *tls)
{
    return tls->wants_write;
}

const char *net_tls_library(void)
{
    return OpenSSL_version(OPENSSL_VERSION);
}
