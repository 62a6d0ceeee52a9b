/* SPDX-License-Identifier: Apache-2.0
 *
 * lines.c - the ops of the example engine: a line for each op, an answer for each line.
 *
 * op->engine[0] is the call of a submitted op. A cancelled op whose call was sent waits a little
 * for the answer, because an answer says more than "unknown": a poll that is under way when a
 * caller's time is over usually ends with "busy". An op that ends without its answer leaves its
 * call behind, because the answer still comes; the call's `op` is then NULL.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "lines.h"

#define CANCEL_MS 100 /* how long a cancelled op waits for its answer */

/* ---- texts on the wire: "=TEXT" -------------------------------------------------------------- */

static void put_text(FILE *out, const char *text)
{
    fputc('=', out);
    for (; *text; text++) {
        bool plain = (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z') ||
                     (*text >= '0' && *text <= '9') || strchr("._-", *text);

        fprintf(out, plain ? "%c" : "%%%02X", (unsigned char)*text);
    }
}

/* Decode in place; NULL: not a text. */
static const char *get_text(char *word)
{
    char *to = word, *from = word + 1;
    unsigned byte;

    if (word[0] != '=')
        return NULL;
    while (*from)
        if (*from != '%') {
            *to++ = *from++;
        } else if (sscanf(from, "%%%2x", &byte) == 1 && byte) {
            *to++ = (char)byte;
            from += 3;
        } else {
            return NULL;
        }
    *to = 0;
    return word;
}

/* ---- requests -------------------------------------------------------------------------------- */

static void put_owner(FILE *out, const char *name, const pawl_owner *owner)
{
    fputc(' ', out);
    put_text(out, name);
    fprintf(out, " %016" PRIx64 " %" PRIu64, owner->client, owner->seq);
}

/* Without CAP_QUEUE, CAP_SHARED and so on the core submits only these. False: an op that this
 * engine does not know. */
static bool put_request(FILE *out, const pawl_op *op)
{
    switch (op->kind) {
    case PAWL_OP_ACQUIRE:
        fputs("acquire", out);
        put_owner(out, op->name, &op->owner);
        fprintf(out, " %" PRId64, op->lease_ms);
        break;
    case PAWL_OP_RELEASE:
        fputs("release", out);
        put_owner(out, op->name, &op->owner);
        break;
    case PAWL_OP_RENEW:
        fputs("renew", out);
        for (size_t i = 0; i < op->batch_len; i++) {
            put_owner(out, op->batch[i].name, &op->batch[i].owner);
            fprintf(out, " %" PRId64, op->batch[i].lease_ms);
        }
        break;
    case PAWL_OP_BREAK:
    case PAWL_OP_INSPECT:
    case PAWL_OP_LIST:
        fputs(op->kind == PAWL_OP_BREAK     ? "break "
              : op->kind == PAWL_OP_INSPECT ? "inspect "
                                            : "list ", out);
        put_text(out, op->name);
        break;
    default:
        return false;
    }
    fputc('\n', out);
    return true;
}

static void free_unsent(call *c)
{
    if (c)
        free(c->text);
    free(c);
}

/* NULL: *code says why. */
static call *new_call(pawl_op *op, int *code)
{
    call *c = calloc(1, sizeof *c);
    FILE *out = c ? open_memstream(&c->text, &c->length) : NULL;
    bool known = out && put_request(out, op);
    bool complete = out && !ferror(out);

    complete &= out && !fclose(out);
    *code = known || !out ? PAWL_ENOMEM : PAWL_ENOTSUP;
    if (known && complete) {
        c->op = op;
        return c;
    }
    free_unsent(c);
    return NULL;
}

static void lines_submit(void *self, pawl_op *op)
{
    lines *l = self;
    int code;

    if (op->kind == PAWL_OP_EVENT) {
        pawl_events_submit(&l->events, op);
        return;
    }
    op->engine[0] = new_call(op, &code);
    if (op->engine[0])
        link_send(l, op->engine[0]);
    else
        pawl_op_finish(op, pawl_error_set(op->err, code, "lines: %s",
                                          code == PAWL_ENOMEM ? "out of memory"
                                                              : "the engine can't do this"));
}

/* ---- answers --------------------------------------------------------------------------------- */

void lines_unanswered(call *c, int code, const char *why)
{
    if (c->op)
        pawl_op_finish(c->op, pawl_error_set(c->op->err, code, "%s", why));
}

/* The call was sent, so link_fail ends the call with PAWL_EUNKNOWN and frees the call. */
static bool not_understood(lines *l)
{
    link_fail(l, "the server's answer can't be understood");
    return false;
}

static int answer_acquire(const call *c, pawl_op *op, const char *line)
{
    if (!strcmp(line, "busy")) {
        pawl_op_waits(op);
        return PAWL_EBUSY;
    }
    if (sscanf(line, "granted %" SCNu64, &op->token) != 1)
        return PAWL_EPROTO;
    op->ntokens = 1;
    op->lease_from = c->sent;
    return 0;
}

/* The server answers for each item, in the order of the items. */
static int answer_renew(const call *c, pawl_op *op, char *line)
{
    char *rest, *word = strtok_r(line, " ", &rest);

    if (!word || strcmp(word, "renewed"))
        return PAWL_EPROTO;
    for (size_t i = 0; i < op->batch_len; i++) {
        word = strtok_r(NULL, " ", &rest);
        if (!word)
            return PAWL_EPROTO;
        op->batch[i].code = strcmp(word, "ok") ? PAWL_ENOTHELD : 0;
    }
    op->lease_from = c->sent;
    return 0;
}

static int answer_plain(const char *line)
{
    return !strcmp(line, "ok") ? 0 : !strcmp(line, "notheld") ? PAWL_ENOTHELD : PAWL_EPROTO;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static pawl_info empty_row(const char *name)
{
    return (pawl_info){.size = sizeof(pawl_info), .name = name, .role = PAWL_ROLE_SUMMARY,
                       .since_ms = -1, .lease_ms = -1, .host = "", .program = "", .label = "",
                       .owner = "", .wait_ms = -1};
}

/* INSPECT wants a summary row and then the holders, LIST only summary rows. */
static void give_row(call *c, pawl_info *info)
{
    pawl_op *op = c->op;

    c->rows = true;
    info->role = PAWL_ROLE_SUMMARY;
    info->holders = 1;
    if (!c->row_code)
        c->row_code = op->row(op->row_arg, info);
    info->role = PAWL_ROLE_HOLDER;
    info->holders = 0;
    if (!c->row_code && op->kind == PAWL_OP_INSPECT)
        c->row_code = op->row(op->row_arg, info);
}

/* "row =NAME TOKEN SINCE LEASE CLIENT SEQ =HOST PID =PROGRAM =LABEL" */
static bool take_row(call *c, char *line)
{
    enum { NAME, TOKEN, SINCE, LEASE, CLIENT, SEQ, HOST, PID, PROGRAM, LABEL, WORDS };
    char *rest, *words[WORDS], owner[64];
    pawl_info info = empty_row("");

    strtok_r(line, " ", &rest);
    for (int i = 0; i < WORDS; i++)
        if (!(words[i] = strtok_r(NULL, " ", &rest)))
            return false;
    info.name = get_text(words[NAME]);
    info.token = strtoull(words[TOKEN], NULL, 10);
    info.since_ms = atoll(words[SINCE]);
    info.lease_ms = atoll(words[LEASE]);
    info.host = get_text(words[HOST]);
    info.pid = atoll(words[PID]);
    info.program = get_text(words[PROGRAM]);
    info.label = get_text(words[LABEL]);
    snprintf(owner, sizeof owner, "%.4s#%.20s", words[CLIENT], words[SEQ]);
    info.owner = owner;
    if (!info.name || !info.host || !info.program || !info.label)
        return false;
    if (c->op)
        give_row(c, &info);
    return true;
}

static int end_rows(call *c)
{
    pawl_op *op = c->op;
    pawl_info info = empty_row(op->name);

    if (!c->rows && op->kind == PAWL_OP_INSPECT)
        c->row_code = op->row(op->row_arg, &info);
    return c->row_code;
}

/* ---- lines of the server's ------------------------------------------------------------------- */

static int answer_op(call *c, char *line)
{
    switch (c->op->kind) {
    case PAWL_OP_ACQUIRE:
        return answer_acquire(c, c->op, line);
    case PAWL_OP_RENEW:
        return answer_renew(c, c->op, line);
    case PAWL_OP_INSPECT:
    case PAWL_OP_LIST:
        return strcmp(line, "end") ? PAWL_EPROTO : end_rows(c);
    default:
        return answer_plain(line);
    }
}

bool lines_answer(lines *l, call *c, char *line)
{
    pawl_op *op = c->op;
    int code;

    if (!strncmp(line, "row ", 4))
        return !take_row(c, line) && not_understood(l);
    if (!op)
        return true;
    code = answer_op(c, line);
    if (code == PAWL_EPROTO)
        return not_understood(l);
    c->op = NULL;
    pawl_op_finish(op, code);
    return true;
}

/* "* broken": the core then finds out by RENEW which grant is gone. */
void lines_message(lines *l, const char *line)
{
    if (!strcmp(line, "* broken"))
        pawl_events_report(&l->events, PAWL_EVENT_VERIFY, PAWL_LOST_BROKEN);
}

void lines_ready(lines *l)
{
    pawl_events_report(&l->events, PAWL_EVENT_RECONNECT, 0);
}

/* ---- the engine ------------------------------------------------------------------------------ */

/* End the cancelled ops whose time is over, and set the timer for the next one. */
static void end_cancelled(pawl_timer *timer)
{
    lines *l = timer->arg;
    int64_t now = l->env->now(l->env), next = PAWL_NEVER;

    for (call *c = l->calls; c; c = c->next) {
        pawl_op *op = c->op;

        if (op && c->ends && c->ends <= now) {
            c->op = NULL;
            pawl_op_finish(op, pawl_error_set(op->err, PAWL_EUNKNOWN, "%s: no answer in time",
                                              l->where));
        } else if (op && c->ends && c->ends < next) {
            next = c->ends;
        }
    }
    if (next != PAWL_NEVER)
        l->env->timer_set(l->env, timer, next);
}

static void lines_cancel(void *self, pawl_op *op)
{
    lines *l = self;
    call *c = op->engine[0];

    if (op->kind == PAWL_OP_EVENT) {
        pawl_events_end(&l->events);
    } else if (c->sent) {
        c->ends = l->env->now(l->env) + CANCEL_MS * PAWL_NS_PER_MS;
        if (!l->cancel_timer.armed)
            l->env->timer_set(l->env, &l->cancel_timer, c->ends);
    } else {
        link_withdraw(l, c);
        if (l->why[0])
            pawl_op_finish(op, pawl_error_set(op->err, PAWL_ECONN, "%s", l->why));
        else
            pawl_op_finish(op, PAWL_ECANCELED);
    }
}

static int set_hello(lines *l)
{
    FILE *out = fmemopen(l->hello, sizeof l->hello, "w");

    if (!out)
        return PAWL_ENOMEM;
    fprintf(out, "hello %016" PRIx64 " ", l->env->client_id);
    put_text(out, l->env->host);
    fprintf(out, " %ld ", (long)getpid());
    put_text(out, l->env->program);
    fputc(' ', out);
    put_text(out, l->env->label);
    fputc('\n', out);
    return fclose(out) ? PAWL_EINVAL : 0; /* no room: a label that is too long */
}

static int lines_open(void *self, pawl_env *env, const pawl_url *url, pawl_error *err)
{
    lines *l = self;
    char host[48];
    int port = 0, used = 0, code;

    if (sscanf(url->rest, "//%47[0-9.]:%d%n", host, &port, &used) != 2 || url->rest[used] ||
        port < 1 || port > 65535 || uv_ip4_addr(host, port, &l->at))
        return pawl_error_set(err, PAWL_EINVAL, "write lines://127.0.0.1:7000");
    if (!env->loop)
        return pawl_error_set(err, PAWL_ENOTSUP, "lines: needs a real event loop");
    l->env = env;
    l->cancel_timer = (pawl_timer){.fire = end_cancelled, .arg = l};
    snprintf(l->where, sizeof l->where, "%s:%d", host, port);
    code = set_hello(l);
    if (code)
        return pawl_error_set(err, code, "lines: the label is longer than about 300 bytes");
    link_open(l);
    return 0;
}

static void lines_close(void *self)
{
    lines *l = self;

    if (!l->env) /* open has failed */
        return;
    pawl_events_end(&l->events);
    l->env->timer_clear(l->env, &l->cancel_timer);
    link_close(l);
    l->env = NULL;
}

static int lines_identity(void *self, char *ret, size_t size)
{
    return snprintf(ret, size, "lines %s", ((const lines *)self)->where);
}

static const pawl_engine engine = {
    .abi = PAWL_ENGINE_ABI,
    .caps = PAWL_CAP_FENCE | PAWL_CAP_LIST | PAWL_CAP_BREAKER_UNNAMED,
    .scheme = "lines",
    .state_size = sizeof(lines),
    .open = lines_open,
    .close = lines_close,
    .submit = lines_submit,
    .cancel = lines_cancel,
    .identity = lines_identity,
};

PAWL_API pawl_engine_module_fn pawl_engine_module;

PAWL_API const pawl_engine *pawl_engine_module(void)
{
    return &engine;
}
