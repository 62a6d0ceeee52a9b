/* SPDX-License-Identifier: Apache-2.0
 *
 * check.c - runs test cases, each in its own process, and prints TAP.
 *
 * The runner forks a process for each case (several at a time), collects the output of the case in
 * a memory file, and prints the result when the case ends. A case that is skipped writes the reason
 * to a page that is shared with the runner. When a case has ended, the runner kills the processes
 * that are left in its process group, before the process id can be reused.
 */
#include "check.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pawl.h"

enum { EXIT_FAILED = 1, EXIT_SKIPPED = 77, MAX_JOBS = 64, MAX_REASONS = 32,
       DEFAULT_LIMIT_S = 60 };

typedef struct job {
    check_case *entry;
    pid_t pid;
    int output; /* memory file with the output of the case */
    char (*skip)[160];
} job;

static check_case *cases;
static check_case **cases_end = &cases;
static void (*cleanup)(void);
static char (*skip_reason)[160];
static pid_t runner_pid;
static int case_number;
static unsigned limit_s = DEFAULT_LIMIT_S;

void check_register(check_case *entry)
{
    *cases_end = entry;
    cases_end = &entry->next;
}

/* ---- Inside a case --------------------------------------------------------------------------- */

/* Each line is one write, so that lines of several threads and peers don't mix. */
__attribute__((format(printf, 1, 0)))
static void print_line(const char *format, va_list args)
{
    char line[1024];
    int n = vsnprintf(line, sizeof line - 1, format, args);
    size_t used = n < 0 ? 0 : (size_t)n < sizeof line - 2 ? (size_t)n : sizeof line - 2;

    line[used++] = '\n';
    if (write(STDOUT_FILENO, line, used) < 0)
        return;
}

void check_note(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    print_line(format, args);
    va_end(args);
}

/* Ends with _exit: the library may be in any state, and no exit handler is needed. */
void check_fail(const char *file, int line, const char *format, ...)
{
    char text[768];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    check_note("%s:%d: failed: %s", file, line, text);
    _exit(EXIT_FAILED);
}

void check_eq(const char *file, int line, const char *expression, int64_t have,
              const char *wanted, int64_t want)
{
    if (have != want)
        check_fail(file, line, "%s is %lld, not %s = %lld", expression, (long long)have, wanted,
                   (long long)want);
}

void check_str(const char *file, int line, const char *expression, const char *have,
               const char *want)
{
    if (strcmp(have, want))
        check_fail(file, line, "%s is \"%s\", not \"%s\"", expression, have, want);
}

/* The harness has its own table of names, because some tests don't link the library. */
static const char *code_name(int code)
{
#define CODE_NAME(name, value, text)                                                               \
    if (code == value)                                                                             \
        return "PAWL_" #name;
    PAWL_ERRORS(CODE_NAME)
#undef CODE_NAME
    return code == 0 ? "PAWL_OK" : "no code of Pawl";
}

void check_code(const char *file, int line, const char *expression, int have, int want)
{
    if (have != want)
        check_fail(file, line, "%s is %s (%d), not %s", expression, code_name(have), have,
                   code_name(want));
}

void check_skip(const char *reason)
{
    snprintf(*skip_reason, sizeof *skip_reason, "%s", reason);
    check_run_cleanup();
    _exit(EXIT_SKIPPED);
}

void check_cleanup(void (*fn)(void))
{
    cleanup = fn;
}

void check_run_cleanup(void)
{
    if (cleanup)
        cleanup();
}

const char *check_name(const char *suffix)
{
    static char names[64][64];
    static int next;
    char *name = names[next++ % 64];

    snprintf(name, sizeof names[0], "t%d-%d-%s", (int)runner_pid, case_number, suffix);
    return name;
}

/* ---- The runner ------------------------------------------------------------------------------ */

static _Noreturn void run_case(const job *j)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    skip_reason = j->skip;
    if (dup2(j->output, STDOUT_FILENO) < 0 || dup2(j->output, STDERR_FILENO) < 0)
        _exit(EXIT_FAILED);
    alarm(limit_s);
    j->entry->run();
    check_run_cleanup();
    exit(EXIT_SUCCESS); /* not _exit: a leak checker reports here */
}

static bool start_job(job *j, check_case *entry)
{
    j->entry = entry;
    (*j->skip)[0] = '\0';
    j->output = memfd_create("case", MFD_CLOEXEC);
    fflush(NULL);
    j->pid = j->output < 0 ? -1 : fork();
    if (j->pid == 0)
        run_case(j);
    if (j->pid > 0)
        setpgid(j->pid, j->pid);
    return j->pid > 0;
}

static void print_output(int fd)
{
    FILE *file = fdopen(fd, "r");
    char line[1024];

    if (!file)
        return;
    rewind(file);
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        printf("# %s\n", line);
    }
    fclose(file);
}

/* ---- the summary ----------------------------------------------------------------------------- */

/* How many cases were skipped for the same reason. */
static struct {
    char reason[160];
    int n;
} skips[MAX_REASONS];

static void count_skip(const char *reason)
{
    int i = 0;

    while (i < MAX_REASONS - 1 && skips[i].n && strcmp(skips[i].reason, reason) != 0)
        i++;
    if (!skips[i].n)
        snprintf(skips[i].reason, sizeof skips[i].reason, "%s",
                 i < MAX_REASONS - 1 ? reason : "other reasons");
    skips[i].n++;
}

static void print_summary(int done, int failed)
{
    int skipped = 0;

    for (int i = 0; i < MAX_REASONS; i++)
        skipped += skips[i].n;
    printf("# %d cases: %d passed, %d failed, %d skipped\n", done, done - failed - skipped, failed,
           skipped);
    for (int i = 0; i < MAX_REASONS && skips[i].n; i++)
        printf("# %d skipped: %s\n", skips[i].n, skips[i].reason);
}

/* Print the result of a case; returns whether the case passed or was skipped. */
static bool report(job *j, int number, int status)
{
    bool skipped = WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIPPED;
    bool ok = skipped || (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS);

    printf("%s %d - %s", ok ? "ok" : "not ok", number, j->entry->title);
    if (skipped) {
        printf(" # SKIP %s", *j->skip);
        count_skip(*j->skip);
    }
    printf("\n");
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        printf("# not done after %u s\n", limit_s);
    else if (WIFSIGNALED(status))
        printf("# ended by signal %d\n", WTERMSIG(status));
    else if (!ok)
        printf("# exit status %d\n", WEXITSTATUS(status));
    print_output(j->output);
    fflush(stdout);
    return ok;
}

static job *wait_for_one(job *jobs, int njobs, int *status)
{
    siginfo_t info;

    while (waitid(P_ALL, 0, &info, WEXITED | WNOWAIT))
        if (errno != EINTR)
            return NULL;
    kill(-info.si_pid, SIGKILL); /* peers that the case left behind */
    waitpid(info.si_pid, status, 0);
    for (int i = 0; i < njobs; i++)
        if (jobs[i].pid == info.si_pid)
            return &jobs[i];
    return NULL;
}

static bool selected(const check_case *entry, const char *filter)
{
    return !filter || strstr(entry->title, filter);
}

static int run_all(const char *filter, int njobs)
{
    static job jobs[MAX_JOBS];
    check_case *next = cases;
    int planned = 0, running = 0, done = 0, failed = 0;

    for (check_case *c = cases; c; c = c->next)
        planned += selected(c, filter);
    printf("1..%d\n", planned);
    for (int i = 0; i < njobs; i++) {
        jobs[i].skip = mmap(NULL, sizeof *jobs[i].skip, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (jobs[i].skip == MAP_FAILED)
            return EXIT_FAILED;
    }
    while (done < planned) {
        job *j = jobs;
        int status;

        while (next && !selected(next, filter))
            next = next->next;
        if (next && running < njobs) {
            while (j->pid)
                j++;
            case_number++;
            if (!start_job(j, next)) {
                printf("Bail out! can't fork: %s\n", strerror(errno));
                return EXIT_FAILED;
            }
            next = next->next;
            running++;
            continue;
        }
        j = wait_for_one(jobs, njobs, &status);
        if (!j)
            continue;
        failed += !report(j, ++done, status);
        j->pid = 0;
        running--;
    }
    print_summary(done, failed);
    return failed ? EXIT_FAILED : EXIT_SUCCESS;
}

static int env_number(const char *name, int fallback)
{
    const char *text = getenv(name);
    int value = text ? atoi(text) : 0;

    return value > 0 ? value : fallback;
}

int check_main(int argc, char **argv)
{
    const char *filter = NULL;
    int njobs = env_number("CHECK_JOBS", 4);

    runner_pid = getpid();
    limit_s = (unsigned)env_number("CHECK_LIMIT", DEFAULT_LIMIT_S);
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--list")) {
            for (check_case *c = cases; c; c = c->next)
                printf("%s\n", c->title);
            return EXIT_SUCCESS;
        }
        if (!strcmp(argv[i], "-j") && i + 1 < argc)
            njobs = atoi(argv[++i]);
        else
            filter = argv[i];
    }
    if (njobs < 1 || njobs > MAX_JOBS)
        njobs = 1;
    return run_all(filter, njobs);
}
