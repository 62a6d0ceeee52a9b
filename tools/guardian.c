/* SPDX-License-Identifier: Apache-2.0
 *
 * guardian.c - see guardian.h: first the work of the guardian, then the calls of `pawl run`.
 */
#include "guardian.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "group.h"

#define MAX_MARGIN (NS_PER_S / 4)
#define LAST_WAIT (10 * NS_PER_S) /* for a process that even SIGKILL doesn't end at once */
#define BLIND_WAIT NS_PER_S       /* the same, if the end can't be observed (see group_visible) */

/* The command must be gone this long before the deadline: a busy machine wakes the guardian late,
 * and a killed process takes a moment to end. */
static int64_t margin(int64_t kill_after)
{
    return kill_after / 8 < MAX_MARGIN ? kill_after / 8 : MAX_MARGIN;
}

static char *title;
static size_t title_size;

int64_t guardian_needs(int64_t kill_after)
{
    return kill_after + margin(kill_after);
}

/* ---- In the guardian ----------------------------------------------------------------------- */

/* The guardian gives up the caller's terminal, standard streams (a reader of our output must not
 * wait for the guardian), signals and name. A process whose title has no "pawl" survives "pkill -f
 * pawl" and can end the command afterwards. */
static void detach(void)
{
    static const char text[] = "lock-guardian";
    sigset_t all;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setsid();
    for (int fd = 0; fd < 3; fd++)
        close(fd);
    prctl(PR_SET_NAME, text);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (title_size > sizeof text) {
        memset(title, 0, title_size);
        memcpy(title, text, sizeof text);
    }
}

/* Sleep until `until`, or until `pawl run` sends something. The timer counts the time in which the
 * machine sleeps. Returns false when `pawl run` is gone. */
static bool sleep_until(int link, int timer, int64_t until)
{
    struct itimerspec when = {
        .it_value = {.tv_sec = (time_t)(until / NS_PER_S), .tv_nsec = (long)(until % NS_PER_S)}};
    struct pollfd fds[] = {{.fd = link, .events = POLLIN}, {.fd = timer, .events = POLLIN}};
    char byte;

    timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL);
    if (poll(fds, 2, -1) < 0 || !fds[0].revents)
        return true;
    return recv(link, &byte, 1, MSG_DONTWAIT) != 0;
}

static void end_group(guard_page *page)
{
    int64_t start = boot_now(), kill_at = start + page->kill_after;
    int64_t last = atomic_load(&page->deadline) - margin(page->kill_after);
    pid_t group = atomic_load(&page->group);

    if (!group) /* the command will not start any more: see guardian_enlist */
        return;
    if (!atomic_load(&page->lost) && last < kill_at)
        kill_at = last;
    kill(-group, SIGTERM);
    kill(-group, SIGCONT); /* a stopped process gets SIGTERM when continued */
    if (group_wait_gone(group, kill_at - start))
        return;
    kill(-group, SIGKILL);
    group_wait_gone(group, group_visible() ? LAST_WAIT : BLIND_WAIT);
}

static _Noreturn void guard(guard_page *page, int link, int timer)
{
    bool there = true;
    int32_t state = GUARD_WATCH;

    detach();
    while (there && !atomic_load(&page->lost) && atomic_load(&page->state) == GUARD_WATCH) {
        int64_t term_at = atomic_load(&page->deadline) - guardian_needs(page->kill_after);

        if (boot_now() >= term_at)
            break;
        there = sleep_until(link, timer, term_at);
    }
    /* A guardian that was killed while it ended the command left GUARD_KILL: the next one
     * continues. */
    if (atomic_compare_exchange_strong(&page->state, &state, GUARD_KILL) || state == GUARD_KILL)
        end_group(page);
    _exit(0);
}

/* ---- In pawl run --------------------------------------------------------------------------- */

void guardian_title_area(int argc, char **argv)
{
    if (argc < 1)
        return;
    title = argv[0];
    title_size = (size_t)(argv[argc - 1] + strlen(argv[argc - 1]) + 1 - argv[0]);
}

/* fork without the fork handlers that libraries registered. */
static pid_t bare_fork(void)
{
#if defined(__GLIBC__) && !__GLIBC_PREREQ(2, 34)
    return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
#else
    return _Fork();
#endif
}

static int start(guardian *g)
{
    int ends[2], error = 0;
    int timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC);

    if (timer < 0)
        return errno;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) {
        error = errno;
        close(timer);
        return error;
    }
    g->pid = bare_fork();
    if (g->pid == 0) {
        close(ends[0]); /* otherwise the guardian would never see the end-of-file */
        guard(g->page, ends[1], timer);
    }
    error = g->pid < 0 ? errno : 0;
    close(ends[1]);
    close(timer);
    if (error) {
        close(ends[0]);
        g->pid = 0;
        return error;
    }
    g->link = ends[0];
    return 0;
}

int guardian_open(guardian *g, int64_t deadline, int64_t kill_after_ms)
{
    *g = (guardian){.link = -1};
    g->page = mmap(NULL, sizeof *g->page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                   0);
    if (g->page == MAP_FAILED) {
        g->page = NULL;
        return errno;
    }
    g->page->kill_after = kill_after_ms * NS_PER_MS;
    atomic_store(&g->page->deadline, deadline);
    return start(g);
}

void guardian_deadline(guardian *g, int64_t deadline)
{
    atomic_store(&g->page->deadline, deadline);
}

void guardian_lost(guardian *g)
{
    atomic_store(&g->page->lost, 1);
    if (g->pid)
        send(g->link, "!", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* The child holds our end of the socket until exec: the guardian can't see the end-of-file before
 * the group is written, even if `pawl run` is killed at once after fork. Besides, the child first
 * writes `group` and then reads `state`, and the guardian first writes `state` and then reads
 * `group`, so at least one of the two sees the other's write. */
bool guardian_enlist(guardian *g)
{
    atomic_store(&g->page->group, (int32_t)getpid());
    return atomic_load(&g->page->state) == GUARD_WATCH && !atomic_load(&g->page->lost);
}

/* The guardian has ended, with this status of waitpid(2). */
static void ended(guardian *g, int status)
{
    close(g->link);
    g->link = -1;
    g->pid = 0;
    g->over = !WIFSIGNALED(status);
}

/* Wait for the guardian's end, or with WNOHANG check for the end. A stopped guardian can't end the
 * command, and may be stopped again after a SIGCONT, so `pawl run` kills a stopped guardian. */
static void reap(guardian *g, int flags)
{
    int status = 0;
    pid_t pid;

    while (g->pid && (pid = waitpid(g->pid, &status, flags | WUNTRACED))) {
        if (pid == g->pid && WIFSTOPPED(status)) {
            kill(g->pid, SIGKILL);
            flags = 0;
        } else if (pid == g->pid || errno != EINTR) {
            ended(g, status);
        }
    }
}

int guardian_check(guardian *g)
{
    reap(g, WNOHANG);
    return g->pid || g->over ? 0 : start(g);
}

bool guardian_finish(guardian *g)
{
    int32_t state = GUARD_WATCH, group = atomic_load(&g->page->group);

    if (!atomic_load(&g->page->lost) &&
        atomic_compare_exchange_strong(&g->page->state, &state, GUARD_DONE)) {
        if (g->pid)
            kill(g->pid, SIGKILL); /* at once, even if the guardian is stopped */
        reap(g, 0);
        return true;
    }
    reap(g, 0);
    if (!g->over && group) /* killed while ending the command, or never started */
        kill(-group, SIGKILL);
    return false;
}

void guardian_close(guardian *g)
{
    if (!g->page)
        return;
    if (g->pid)
        guardian_finish(g);
    munmap(g->page, sizeof *g->page);
    g->page = NULL;
}
