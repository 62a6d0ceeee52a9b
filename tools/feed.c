/* SPDX-License-Identifier: Apache-2.0
 *
 * feed.c - see feed.h.
 */
#include "feed.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static int break_named(feed *f)
{
    pawl_lock *lock;
    int code = pawl_inspect(f->client, f->name, rows_add, &f->rows, &f->err);

    if (code)
        return code;
    if (!f->rows.n || !f->rows.row[0]->info.holders)
        return PAWL_ENOTHELD;
    if (f->rows.row[0]->info.token != f->token ||
        strncmp(f->rows.row[0]->info.owner, f->owner, sizeof f->owner - 1)) {
        snprintf(f->err.text, sizeof f->err.text, "somebody else holds the lock by now");
        return PAWL_EBUSY;
    }
    code = pawl_lock_new(&lock, f->client, f->name, NULL, &f->err);
    if (code)
        return code;
    code = pawl_lock_break(lock, &f->err);
    pawl_lock_free(lock);
    return code;
}

static void answer(feed *f)
{
    f->err = (pawl_error){0};
    rows_free(&f->rows);
    if (f->question == ASK_LIST)
        f->err.code = pawl_list(f->client, *f->name ? f->name : NULL, rows_add, &f->rows, &f->err);
    else if (f->question == ASK_BREAK)
        f->err.code = break_named(f);
    else
        f->err.code = pawl_inspect(f->client, f->name, rows_add, &f->rows, &f->err);
}

static void *feed_thread(void *arg)
{
    feed *f = arg;
    uint64_t one = 1;

    pthread_mutex_lock(&f->mutex);
    for (;;) {
        while (!f->asked && !f->quit)
            pthread_cond_wait(&f->wake, &f->mutex);
        if (f->quit)
            break;
        f->asked = false;
        pthread_mutex_unlock(&f->mutex);
        answer(f);
        pthread_mutex_lock(&f->mutex);
        f->answered = true;
        while (write(f->event, &one, sizeof one) < 0 && errno == EINTR)
            ;
    }
    pthread_mutex_unlock(&f->mutex);
    return NULL;
}

int feed_open(feed *f, pawl_client *client)
{
    int error;

    *f = (feed){.client = client};
    f->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (f->event < 0)
        return errno;
    pthread_mutex_init(&f->mutex, NULL);
    pthread_cond_init(&f->wake, NULL);
    error = pthread_create(&f->thread, NULL, feed_thread, f);
    if (error)
        close(f->event);
    return error;
}

void feed_ask(feed *f, enum question question, const char *name, const pawl_info *victim)
{
    f->question = question;
    snprintf(f->name, sizeof f->name, "%s", name);
    f->token = victim ? victim->token : 0;
    snprintf(f->owner, sizeof f->owner, "%s", victim ? victim->owner : "");
    f->busy = true;
    pthread_mutex_lock(&f->mutex);
    f->asked = true;
    pthread_cond_signal(&f->wake);
    pthread_mutex_unlock(&f->mutex);
}

bool feed_take(feed *f)
{
    uint64_t n;
    bool answered;

    if (read(f->event, &n, sizeof n) < 0 && errno != EAGAIN)
        return false;
    pthread_mutex_lock(&f->mutex);
    answered = f->answered;
    f->answered = false;
    pthread_mutex_unlock(&f->mutex);
    f->busy &= !answered;
    return answered;
}

bool feed_close(feed *f)
{
    if (f->busy && !feed_take(f))
        return false;
    pthread_mutex_lock(&f->mutex);
    f->quit = true;
    pthread_cond_signal(&f->wake);
    pthread_mutex_unlock(&f->mutex);
    pthread_join(f->thread, NULL);
    rows_free(&f->rows);
    close(f->event);
    pawl_close(f->client);
    return true;
}
