/* SPDX-License-Identifier: Apache-2.0
 *
 * trouble.c - a library for LD_PRELOAD that makes system calls and allocations of Pawl fail at
 * random, and shifts Pawl's clocks.
 *
 * Only calls from libpawl (and from the program itself if its name is "pawl") are touched: libuv
 * aborts where some calls fail, which is not Pawl's to change. $TROUBLE names a file with a struct
 * control, shared by all processes of a test and changed by the test while they run; $TROUBLE_SEED
 * seeds this process. Whether a call fails depends on the seed and on how many calls there were
 * before. A call that fails does nothing; a write may also be cut short.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { OPEN, SOCKET, CONNECT, READ, WRITE, FILE_READ, FILE_WRITE, MAP, LOCK, THREAD, FORK, WATCH,
       MAKE, MEMORY, WAIT, CALLS };

struct control {
    _Atomic int64_t realtime_ns, boottime_ns; /* added to what the clocks say */
    _Atomic uint32_t rate[32];                /* of 65536 calls so many fail */
    _Atomic uint64_t failed[32];
};

static const int errors[CALLS][6] = {
    [OPEN] = {EMFILE, ENFILE, ENOMEM, EINTR, ENOSPC},
    [SOCKET] = {EMFILE, ENFILE, ENOMEM, ENOBUFS},
    [CONNECT] = {ECONNREFUSED, ETIMEDOUT, ENETUNREACH, EINTR, EAGAIN},
    [READ] = {EINTR, EAGAIN, EAGAIN, EINTR},
    [WRITE] = {EINTR, EAGAIN, EAGAIN, EINTR},
    [FILE_READ] = {EINTR, EIO},
    [FILE_WRITE] = {ENOSPC, EINTR, EIO, ENOSPC},
    [MAP] = {ENOMEM},
    [LOCK] = {ENOLCK, EINTR},
    [THREAD] = {EAGAIN},
    [FORK] = {EAGAIN, ENOMEM},
    [WATCH] = {ENOMEM, ENOSPC},
    [MAKE] = {ENOSPC, ENOMEM, EMFILE},
    [MEMORY] = {ENOMEM},
    [WAIT] = {EINTR},
};

static struct control *control;
static struct { uintptr_t from, to; } ours[16];
static int ours_count;
static uint64_t seed;
static _Atomic uint64_t turn;

/* ---- which calls ----------------------------------------------------------------------------- */

static int note(struct dl_phdr_info *info, size_t size, void *arg)
{
    const char *slash = strrchr(info->dlpi_name, '/');
    bool program = !info->dlpi_name[0] && !strcmp(program_invocation_short_name, "pawl");

    (void)size, (void)arg;
    if (!program && strncmp(slash ? slash + 1 : info->dlpi_name, "libpawl", 7))
        return 0;
    for (int i = 0; i < info->dlpi_phnum && ours_count < 16; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD) {
            ours[ours_count].from = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            ours[ours_count].to = ours[ours_count].from + info->dlpi_phdr[i].p_memsz;
            ours_count++;
        }
    return 0;
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("TROUBLE"), *number = getenv("TROUBLE_SEED");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *page = fd < 0 ? MAP_FAILED
                        : mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (fd >= 0)
        close(fd);
    seed = number ? strtoull(number, NULL, 10) : 1;
    dl_iterate_phdr(note, NULL);
    if (page != MAP_FAILED)
        control = page;
}

static bool is_ours(const void *caller)
{
    for (int i = 0; control && i < ours_count; i++)
        if ((uintptr_t)caller >= ours[i].from && (uintptr_t)caller < ours[i].to)
            return true;
    return false;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Does this call fail? errno says how. */
static bool fails(int call, const void *caller)
{
    uint32_t rate = control ? atomic_load(&control->rate[call]) : 0;
    uint64_t dice;
    int n = 0;

    if (!rate || !is_ours(caller))
        return false;
    dice = mix(seed * UINT64_C(0x9e3779b97f4a7c15) + atomic_fetch_add(&turn, 1));
    if ((dice & 0xffff) >= rate)
        return false;
    while (n < 6 && errors[call][n])
        n++;
    errno = errors[call][(dice >> 16) % (uint64_t)n];
    atomic_fetch_add(&control->failed[call], 1);
    return true;
}

#define CALLER __builtin_return_address(0)
#define WRAP(call, type, failure, name, params, args)                                           \
    type name params;                                                                           \
    type name params                                                                            \
    {                                                                                           \
        static type(*_Atomic real) params;                                                      \
                                                                                                \
        if (!real)                                                                              \
            real = (type(*) params)dlsym(RTLD_NEXT, #name);                                     \
        if (fails(call, CALLER))                                                                \
            return failure;                                                                     \
        return real args;                                                                       \
    }

/* ---- the calls ------------------------------------------------------------------------------- */

static int opened(int folder, const char *path, int flags, mode_t mode)
{
    static int (*real)(int, const char *, int, ...);

    if (!real)
        real = (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, "openat");
    return real(folder, path, flags, mode);
}

#define MODE(flags, mode)                                                                       \
    do {                                                                                        \
        va_list args;                                                                           \
        va_start(args, flags);                                                                  \
        mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;                        \
        va_end(args);                                                                           \
    } while (0)

int open64(const char *path, int flags, ...)
{
    mode_t mode;

    MODE(flags, mode);
    return fails(OPEN, CALLER) ? -1 : opened(AT_FDCWD, path, flags, mode);
}

int openat64(int folder, const char *path, int flags, ...)
{
    mode_t mode;

    MODE(flags, mode);
    return fails(OPEN, CALLER) ? -1 : opened(folder, path, flags, mode);
}

int fcntl64(int fd, int what, ...)
{
    static int (*real)(int, int, ...);
    va_list args;
    void *arg;

    va_start(args, what);
    arg = va_arg(args, void *);
    va_end(args);
    if (!real)
        real = (int (*)(int, int, ...))dlsym(RTLD_NEXT, "fcntl64");
    if ((what == F_OFD_SETLK || what == F_OFD_GETLK || what == F_OFD_SETLKW) && fails(LOCK, CALLER))
        return -1;
    return real(fd, what, arg);
}

WRAP(SOCKET, int, -1, socket, (int a, int b, int c), (a, b, c))
WRAP(SOCKET, int, -1, socketpair, (int a, int b, int c, int d[2]), (a, b, c, d))
WRAP(SOCKET, int, -1, eventfd, (unsigned a, int b), (a, b))
WRAP(SOCKET, int, -1, timerfd_create, (clockid_t a, int b), (a, b))
WRAP(SOCKET, int, -1, epoll_create1, (int a), (a))
WRAP(CONNECT, int, -1, connect, (int a, const struct sockaddr *b, socklen_t c), (a, b, c))
WRAP(READ, ssize_t, -1, recv, (int a, void *b, size_t c, int d), (a, b, c, d))
WRAP(READ, ssize_t, -1, read, (int a, void *b, size_t c), (a, b, c))
WRAP(WRITE, ssize_t, -1, sendto,
     (int a, const void *b, size_t c, int d, const struct sockaddr *e, socklen_t f),
     (a, b, c, d, e, f))
WRAP(FILE_READ, ssize_t, -1, pread64, (int a, void *b, size_t c, off64_t d), (a, b, c, d))
WRAP(FILE_WRITE, ssize_t, -1, pwrite64, (int a, const void *b, size_t c, off64_t d), (a, b, c, d))
WRAP(FILE_WRITE, int, -1, fallocate64, (int a, int b, off64_t c, off64_t d), (a, b, c, d))
WRAP(FILE_WRITE, int, -1, ftruncate64, (int a, off64_t b), (a, b))
WRAP(FILE_WRITE, int, -1, fdatasync, (int a), (a))
WRAP(MAP, void *, MAP_FAILED, mmap64, (void *a, size_t b, int c, int d, int e, off64_t f),
     (a, b, c, d, e, f))
WRAP(THREAD, int, EAGAIN, pthread_create,
     (pthread_t * a, const pthread_attr_t *b, void *(*c)(void *), void *d), (a, b, c, d))
WRAP(FORK, pid_t, -1, fork, (void), ())
WRAP(FORK, pid_t, -1, _Fork, (void), ())
WRAP(MAKE, int, -1, bind, (int a, const struct sockaddr *b, socklen_t c), (a, b, c))
WRAP(MAKE, int, -1, mkfifoat, (int a, const char *b, mode_t c), (a, b, c))
WRAP(MAKE, int, -1, mkdirat, (int a, const char *b, mode_t c), (a, b, c))
WRAP(MAKE, int, -1, linkat, (int a, const char *b, int c, const char *d, int e), (a, b, c, d, e))
WRAP(WAIT, int, -1, epoll_wait, (int a, struct epoll_event *b, int c, int d), (a, b, c, d))
WRAP(MEMORY, char *, NULL, strdup, (const char *a), (a))
WRAP(MEMORY, char *, NULL, strndup, (const char *a, size_t b), (a, b))

int epoll_ctl(int a, int b, int c, struct epoll_event *d)
{
    static int (*real)(int, int, int, struct epoll_event *);

    if (!real)
        real = (int (*)(int, int, int, struct epoll_event *))dlsym(RTLD_NEXT, "epoll_ctl");
    return b == EPOLL_CTL_ADD && fails(WATCH, CALLER) ? -1 : real(a, b, c, d);
}

/* Writes are cut short as well. */
static size_t shorter(size_t size, const void *caller)
{
    int saved = errno;
    bool cut = size > 1 && fails(WRITE, caller);

    errno = saved;
    return cut ? size / 2 : size;
}

ssize_t send(int a, const void *b, size_t c, int d)
{
    static ssize_t (*real)(int, const void *, size_t, int);
    int type = 0;
    socklen_t n = sizeof type;

    if (!real)
        real = (ssize_t(*)(int, const void *, size_t, int))dlsym(RTLD_NEXT, "send");
    if (fails(WRITE, CALLER))
        return -1;
    getsockopt(a, SOL_SOCKET, SO_TYPE, &type, &n);
    return real(a, b, type == SOCK_STREAM ? shorter(c, CALLER) : c, d);
}

/* What has eight bytes goes to an eventfd: that does not fail, unless it is readable anyway. */
ssize_t write(int a, const void *b, size_t c)
{
    static ssize_t (*real)(int, const void *, size_t);

    if (!real)
        real = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    return c != sizeof(uint64_t) && fails(WRITE, CALLER) ? -1 : real(a, b, c);
}

/* dlsym itself allocates: these call the C library's own names. */
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);

void *malloc(size_t size)
{
    return fails(MEMORY, CALLER) ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    return fails(MEMORY, CALLER) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *old, size_t size)
{
    return fails(MEMORY, CALLER) ? NULL : __libc_realloc(old, size);
}

/* ---- clocks ---------------------------------------------------------------------------------- */

static int64_t shift(clockid_t clock)
{
    return !control                    ? 0
           : clock == CLOCK_REALTIME ? atomic_load(&control->realtime_ns)
           : clock == CLOCK_BOOTTIME ? atomic_load(&control->boottime_ns)
                                     : 0;
}

static void add(struct timespec *t, int64_t ns)
{
    int64_t all = (int64_t)t->tv_sec * 1000000000 + t->tv_nsec + ns;

    all = all > 0 ? all : 1;
    t->tv_sec = all / 1000000000;
    t->tv_nsec = all % 1000000000;
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
    static int (*real)(clockid_t, struct timespec *);
    int result;

    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    result = real(clock, t);
    if (!result && is_ours(CALLER))
        add(t, shift(clock));
    return result;
}

/* Pawl's timers are on CLOCK_BOOTTIME, at instants of the shifted clock. */
int timerfd_settime(int fd, int flags, const struct itimerspec *when, struct itimerspec *old)
{
    static int (*real)(int, int, const struct itimerspec *, struct itimerspec *);
    struct itimerspec mine = *when;

    if (!real)
        real = (int (*)(int, int, const struct itimerspec *, struct itimerspec *))dlsym(
            RTLD_NEXT, "timerfd_settime");
    if (flags & TFD_TIMER_ABSTIME && is_ours(CALLER) &&
        (mine.it_value.tv_sec || mine.it_value.tv_nsec))
        add(&mine.it_value, -shift(CLOCK_BOOTTIME));
    return real(fd, flags, &mine, old);
}
