/* SPDX-License-Identifier: Apache-2.0
 *
 * clock_shim.c - a wall clock that a test can step, for a server that is started with this library
 * in LD_PRELOAD. $CLKSHIM names a file of 4096 bytes that begins with an int64, the number of ns to
 * add to CLOCK_REALTIME; the file may change at any time. Other clocks are not changed.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t zero;
static volatile int64_t *offset = &zero;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("CLKSHIM");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *map = fd < 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);

    if (map != MAP_FAILED)
        offset = map;
    if (fd >= 0)
        close(fd);
}

/* The time is read by a system call, not by a function found with dlsym: dlsym may allocate, and
 * allocators ask for the time. */
int clock_gettime(clockid_t clock, struct timespec *t)
{
    int result = (int)syscall(SYS_clock_gettime, clock, t);
    int64_t ns;

    if (result || clock != CLOCK_REALTIME)
        return result;
    ns = (int64_t)t->tv_sec * 1000000000 + t->tv_nsec + *offset;
    t->tv_sec = ns / 1000000000;
    t->tv_nsec = ns % 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
    struct timespec now;

    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    t->tv_sec = now.tv_sec;
    t->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *ret)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (ret)
        *ret = now.tv_sec;
    return now.tv_sec;
}
