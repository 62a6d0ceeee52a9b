/* SPDX-License-Identifier: Apache-2.0
 *
 * group.c - looks through /proc with bare system calls: opendir(3) allocates memory, which a
 * process that was forked from a multi-threaded one must not do.
 */
#include "group.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"

/* The record that getdents64(2) writes. */
struct dirent64_raw {
    uint64_t ino;
    int64_t off;
    uint16_t reclen;
    uint8_t type;
    char name[];
};

/* One process: "PID (COMM) STATE PPID PGRP ..." where COMM may contain anything, even ") Z 1 1". So
 * the fields are read from the last parenthesis on. */
static bool runs_in(const char *stat, pid_t group)
{
    const char *p = strrchr(stat, ')');
    char state;
    long pgrp = 0;

    if (!p || strlen(p) < 5)
        return false;
    state = p[2];
    for (p += 4; *p && *p != ' '; p++) /* PPID */
        ;
    if (*p)
        p++;
    for (; *p >= '0' && *p <= '9'; p++)
        pgrp = pgrp * 10 + (*p - '0');
    return pgrp == group && state != 'Z' && state != 'X';
}

static bool process_runs_in(int proc, const char *pid, pid_t group)
{
    char path[32], stat[512];
    size_t len = strlen(pid);
    ssize_t n;
    int fd;

    if (len + sizeof "/stat" > sizeof path)
        return false;
    memcpy(path, pid, len);
    memcpy(path + len, "/stat", sizeof "/stat");
    fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    n = read(fd, stat, sizeof stat - 1);
    close(fd);
    stat[n > 0 ? n : 0] = '\0';
    return runs_in(stat, group);
}

static bool search(int proc, pid_t group)
{
    _Alignas(struct dirent64_raw) char buf[8192];
    long n;

    while ((n = syscall(SYS_getdents64, proc, buf, sizeof buf)) > 0)
        for (long at = 0; at < n;) {
            const struct dirent64_raw *d = (const struct dirent64_raw *)(buf + at);

            if (d->name[0] >= '1' && d->name[0] <= '9' && process_runs_in(proc, d->name, group))
                return true;
            at += d->reclen;
        }
    return n < 0;
}

bool group_visible(void)
{
    char text[16] = "";
    long long self = 0;
    ssize_t n = readlink("/proc/self", text, sizeof text - 1);

    for (ssize_t i = 0; i < n; i++)
        self = self * 10 + (text[i] - '0');
    return self == getpid();
}

bool group_alive(pid_t group)
{
    bool alive;
    int proc;

    if (kill(-group, 0) && errno == ESRCH)
        return false;
    if (!group_visible())
        return true;
    proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (proc < 0)
        return true;
    alive = search(proc, group);
    close(proc);
    return alive;
}

bool group_wait_gone(pid_t group, int64_t ns)
{
    int64_t until = boot_now() + ns, step = 1000000;

    while (group_alive(group)) {
        int64_t left = until - boot_now();
        struct timespec pause;

        if (left <= 0)
            return false;
        if (step < 64000000)
            step *= 2;
        left = left < step ? left : step;
        pause.tv_sec = (time_t)(left / NS_PER_S);
        pause.tv_nsec = (long)(left % NS_PER_S);
        nanosleep(&pause, NULL);
    }
    return true;
}
