/* SPDX-License-Identifier: Apache-2.0
 *
 * one_node_job.c - every node has the job in its crontab, and one node runs the job.
 *
 * Each node tries to acquire the lock without waiting. A node that does not get the lock knows that
 * another node runs the job. If the job is quick, a node whose clock is late would find the lock
 * free again and run the job a second time. So at_least_ms keeps the lock held for a while after
 * the release, even if the process that ran the job has ended. All services can do this except zk,
 * layout=advisory and layout=session. There a lock ends with its client, so each node would have to
 * keep its client open for that time.
 *
 *     one_node_job [URL]         the URL of the service, by default $PAWL_URL or local:
 */
#include <pawl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NODES = 5, RAN = 10, NOT_MY_TURN = 11, FAILED = 1 };

static int run_node(const char *url)
{
    pawl_lock_options options = {.size = sizeof options, .at_least_ms = 30000};
    pawl_client *client;
    pawl_lock *lock;
    pawl_error err;
    int code;

    if (pawl_open(&client, url, NULL, &err) ||
        pawl_lock_new(&lock, client, "nightly report", &options, &err)) {
        fprintf(stderr, "one_node_job: %s\n", err.text);
        return FAILED;
    }
    code = pawl_lock_acquire(lock, 0, &err);
    if (code == 0)
        code = pawl_lock_release(lock, &err); /* the job itself takes no time */
    else if (code == PAWL_EBUSY)
        code = NOT_MY_TURN;
    if (code < 0)
        fprintf(stderr, "one_node_job: %s\n", err.text);
    pawl_lock_free(lock);
    pawl_close(client);
    return code == 0 ? RAN : code == NOT_MY_TURN ? NOT_MY_TURN : FAILED;
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : getenv("PAWL_URL") ? getenv("PAWL_URL") : "local:";
    int ran = 0, others = 0;

    for (int i = 0; i < NODES; i++) {
        int status;

        if (fork() == 0)
            _exit(run_node(url));
        if (i % 2) /* some nodes start together, some after an earlier one has ended */
            continue;
        if (wait(&status) < 0 || !WIFEXITED(status))
            return 1;
        ran += WEXITSTATUS(status) == RAN;
        others += WEXITSTATUS(status) == NOT_MY_TURN;
    }
    for (int status; wait(&status) > 0;) {
        ran += WIFEXITED(status) && WEXITSTATUS(status) == RAN;
        others += WIFEXITED(status) && WEXITSTATUS(status) == NOT_MY_TURN;
    }
    printf("%d nodes: %d ran the job, %d left it to another\n", NODES, ran, others);
    return ran == 1 && others == NODES - 1 ? 0 : 1;
}
