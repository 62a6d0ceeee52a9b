# SPDX-License-Identifier: Apache-2.0
"""Writes a sequential program as a C test: the same calls in the same order, with pawl.h alone. The test
compares each result with the result on memory: (`generate expect`), and exits with status 1 if one differs.

Each step is a function, called by the thread that the program names. After a step the test waits for the
operations that ended in that step on memory:, and for nothing else. Operations that still wait at the end
are ended by closing the clients, with any code.
"""
import subprocess

HEAD = '''/* Seed %(seed)d of the generator, on %(engine)s:
 * cc -std=gnu11 THIS.c -lpawl -lpthread && ./a.out URL; the status says whether it passed. */
#include <pawl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wunused-function" /* not every program needs every function */
#pragma GCC diagnostic ignored "-Wunused-variable"

enum { STEPS = %(steps)d, NEVER = STEPS };

/* What a callback does: see on_done and on_lost. */
enum act { NOTHING, RELEASE, FREE, CANCEL, AGAIN, ASK, BLOCK };

struct handle {
    void *p;
    enum act lost, done;
    volatile int losses;
};

/* What memory: gave: in which step the operation ends, and how. -1: not checked. */
struct expected {
    const char *text;
    int ends, code, held, count;
    long long value;
};

static struct step {
    volatile int over;
    int code, held, count;
    int64_t value;
} steps[STEPS];
static int failures;
static char prefix[64];

static void check(int i, const char *what, long long got, long long want)
{
    if (got == want)
        return;
    failures++;
    printf("step %%d: %%s is %%lld, not %%lld\\n", i, what, got, want);
}

static const char *name_of(int n)
{
    static __thread char name[96];

    snprintf(name, sizeof name, "%%s-%%d", prefix, n);
    return name;
}

static void ignore(void *arg, pawl_lock *lock, int code)
{
    (void)arg;
    (void)lock;
    (void)code;
}

static void act(struct handle *h, enum act what, int first)
{
    pawl_lock *lock = h->p;

    if (!lock)
        return;
    if (what == RELEASE && first)
        pawl_lock_release_start(lock, ignore, NULL);
    else if (what == AGAIN && first)
        pawl_lock_acquire_start(lock, 0, ignore, NULL);
    else if (what == CANCEL)
        pawl_lock_cancel(lock);
    else if (what == BLOCK)
        check(-1, "acquire in a callback", pawl_lock_acquire(lock, 0, NULL), PAWL_EDEADLK);
    else if (what == FREE) {
        h->p = NULL;
        pawl_lock_free(lock);
    }
}

static void on_lost(void *arg, pawl_lock *lock, int code)
{
    struct handle *h = arg;

    (void)lock;
    check(-1, "code of on_lost", code, PAWL_ELOST);
    act(h, h->lost, h->losses < (h->lost == RELEASE ? 4 : 1));
    h->losses++;
}

struct started {
    struct handle *handle;
    int step;
};

static void on_done(void *arg, pawl_lock *lock, int code)
{
    struct started *s = arg;

    (void)lock;
    steps[s->step].code = code;
    act(s->handle, s->handle->done, 1);
    steps[s->step].over++;
}

static int look(void *arg, const pawl_info *info)
{
    int64_t *value = arg;

    if (info->role != PAWL_ROLE_SUMMARY)
        return 0;
    *value = (int64_t)info->holders * 1000 + (info->holders && info->shared ? 1 : 0);
    if (info->type == PAWL_TYPE_SEMAPHORE)
        *value += info->available * 10;
    else if (info->type == PAWL_TYPE_LATCH)
        *value += info->count * 10;
    return 0;
}

static int count_names(void *arg, const pawl_info *info)
{
    if (!strncmp(info->name, prefix, strlen(prefix)) && info->name[strlen(prefix)] == '-')
        ++*(int64_t *)arg;
    return 0;
}

static int await_loss(struct handle *h, int ms)
{
    int before = h->losses;

    for (int i = 0; i < ms && pawl_lock_held(h->p); i++)
        usleep(1000);
    for (int i = 0; i < ms && h->losses == before; i++)
        usleep(1000);
    usleep(1500000); /* the service's lease lasts a little longer than the holder's */
    return 0;
}

static int in_child(int (*refused)(void))
{
    int status = 0;
    pid_t child = fork();

    if (!child)
        _exit(refused());
    waitpid(child, &status, 0);
    return status;
}

struct worker {
    pthread_t id;
    int runs;
    void (*volatile step)(void);
    volatile int quit;
};

static void *work(void *arg)
{
    struct worker *worker = arg;

    for (; !worker->quit; usleep(200))
        if (worker->step) {
            worker->step();
            worker->step = NULL;
        }
    return NULL;
}

static void leave(struct worker *worker)
{
    if (worker->runs) {
        worker->quit = 1;
        pthread_join(worker->id, NULL);
    }
    memset(worker, 0, sizeof *worker);
}

static void let(struct worker *worker, void (*step)(void))
{
    if (!worker->runs) {
        pthread_create(&worker->id, NULL, work, worker);
        worker->runs = 1;
    }
    for (int i = 0; worker->step && i < 20000; i++)
        usleep(1000);
    worker->step = step;
}

'''
TABLE_END = '''
/* Wait until all that ends in step k has ended, and check it. */
static void settle(int k)
{
    for (int i = 0; i < STEPS; i++) {
        for (int ms = 0; expected[i].ends == k && !steps[i].over && ms < 20000; ms++)
            usleep(1000);
        if (expected[i].ends != k)
            continue;
        check(i, "number of ends", steps[i].over, 1);
        if (!steps[i].over)
            continue;
        check(i, expected[i].text, steps[i].code, expected[i].code);
        if (expected[i].value >= 0)
            check(i, "value", steps[i].value, expected[i].value);
        if (expected[i].held >= 0)
            check(i, "held", steps[i].held, expected[i].held);
        if (expected[i].count >= 0)
            check(i, "hold count", steps[i].count, expected[i].count);
    }
    usleep(30000); /* what was given back in the background, or asked for, reaches the service */
    for (int i = 0; i <= k; i++)
        if (expected[i].ends > k)
            check(i, "ended too early", steps[i].over, 0);
}

'''
CALLS = {
    'acquire': 'pawl_lock_acquire({o}, {a}, NULL)',
    'start': 'pawl_lock_acquire_start({o}, {a}, on_done, &(started[{i}]))',
    'release': 'pawl_lock_release({o}, NULL)',
    'rstart': 'pawl_lock_release_start({o}, on_done, &(started[{i}]))',
    'renew': 'pawl_lock_renew({o}, {a}, NULL)',
    'break': 'pawl_lock_break({o}, NULL)',
    'sacquire': 'pawl_semaphore_acquire({o}, {a}, {b}, NULL)',
    'srelease': 'pawl_semaphore_release({o}, {a}, NULL)',
    'avail': 'pawl_semaphore_available({o}, &s->value, NULL)',
    'set': 'pawl_latch_set({o}, {a}, NULL)',
    'down': 'pawl_latch_count_down({o}, NULL)',
    'count': 'pawl_latch_count({o}, &s->value, NULL)',
    'wait': 'pawl_latch_wait({o}, {a}, NULL)',
    'expire': 'await_loss(&object{n}, {a})',
    'inspect': 'pawl_inspect(client{client}, name_of({name}), look, &s->value, NULL)',
    'list': 'pawl_list(client{n}, NULL, count_names, &s->value, NULL)',
    'close': 'pawl_close(client{n})',
    'fork': 'in_child(child_of{i})',
}
REFUSED = {'lock': ('pawl_lock_acquire({o}, 0, NULL)', 'pawl_lock_release({o}, NULL)'),
           'sem': ('pawl_semaphore_acquire({o}, 1, 0, NULL)',),
           'latch': ('pawl_latch_count_down({o}, NULL)',)}
TYPES = {'lock': 'pawl_lock', 'multi': 'pawl_lock', 'sem': 'pawl_semaphore', 'latch': 'pawl_latch'}
KINDS = ('PAWL_MUTEX', 'PAWL_FAIR', 'PAWL_READ', 'PAWL_WRITE', 'PAWL_SPIN')
ACTS = ('NOTHING', 'RELEASE', 'FREE', 'CANCEL', 'AGAIN', 'ASK', 'BLOCK')
WITH_VALUE = ('avail', 'count', 'inspect', 'list')
WITH_HOLD = ('acquire', 'release', 'renew')


class Expected:
    """The results of one step on memory:."""

    def __init__(self, skipped, ends, code, value, held, count):
        self.skipped = bool(skipped)
        self.ends, self.code, self.value, self.held, self.count = ends, code, value, held, count


def expect(exe, program):
    out = subprocess.run([exe, 'expect'], input=program.text(), capture_output=True, text=True,
                         check=True).stdout
    rows = [list(map(int, line.split())) for line in out.splitlines()]
    return [Expected(*row[1:]) for row in rows]


def make_lock(n, f):
    parts = [f'.kind = {KINDS[f["kind"]]}', '.on_lost = on_lost', f'.arg = &object{n}']
    for key, field in (('owner', 'owner'), ('lease', 'lease_ms'), ('max', 'max_hold_ms'),
                       ('atleast', 'at_least_ms')):
        if f.get(key):
            parts.append(f'.{field} = {f[key]}')
    text = ',\n                                      '.join(parts)
    return f'''    check(-1, "object{n}", pawl_lock_new((pawl_lock **)&object{n}.p, client{f["client"]}, name_of({f["name"]}),
        &(pawl_lock_options){{.size = sizeof(pawl_lock_options),
                                      {text}}}, NULL), 0);
'''


def make_object(n, kind, f):
    if kind == 'lock':
        return make_lock(n, f)
    if kind == 'multi':
        members = f['members'].split(',')
        handles = ', '.join(f'object{m}.p' for m in members)
        return f'''    check(-1, "object{n}", pawl_multi_new((pawl_lock **)&object{n}.p, (pawl_lock *[]){{{handles}}},
        {len(members)}, NULL), 0);
'''
    if kind == 'latch':
        return f'''    check(-1, "object{n}", pawl_latch_new((pawl_latch **)&object{n}.p, client{f["client"]},
        name_of({f["name"]}), NULL), 0);
'''
    return f'''    check(-1, "object{n}", pawl_semaphore_new((pawl_semaphore **)&object{n}.p, client{f["client"]},
        name_of({f["name"]}), &(pawl_semaphore_options){{.size = sizeof(pawl_semaphore_options),
            .permits = {f["permits"]}, .lease_ms = {f["lease"]}}}, NULL), 0);
'''


def step_call(program, i, step):
    _, verb, n, a, b = step
    kind, fields = program.objects.get(n, ('lock', {}))
    if verb == 'cancel':
        return f'({TYPES[kind]}_cancel(object{n}.p), 0)'
    if verb == 'free':
        return f'({TYPES[kind]}_free(object{n}.p), object{n}.p = NULL, 0)'
    wait = 'PAWL_FOREVER' if a == -1 else a
    return CALLS[verb].format(o=f'object{n}.p', n=n, a=wait, b=b, i=i, name=fields.get('name', 0),
                              client=fields.get('client', 0))


def step_function(program, i, step):
    thread, verb, n, *_ = step
    kind = program.objects.get(n, ('lock', {}))[0]
    out = ''
    if verb == 'fork':
        calls = ' || '.join(c.format(o=f'object{n}.p') + ' != PAWL_EFORK'
                            for c in REFUSED['lock' if kind == 'multi' else kind])
        out += f'static int child_of{i}(void)\n{{\n    return {calls};\n}}\n\n'
    out += f'static void step{i}(void)\n{{\n    struct step *s = &steps[{i}];\n'
    call = step_call(program, i, step)
    if verb in ('start', 'rstart'):
        return out + f'''    int code = {call};

    if (!code)
        return; /* on_done tells */
    s->code = code;
    s->over++;
}}

'''
    out += f'    s->code = {call};\n'
    if verb == 'cancel':
        out += '    /* how many were cancelled shows in their own codes */\n'
    if verb in WITH_HOLD:
        out += (f'    s->held = pawl_lock_held(object{n}.p) && pawl_lock_valid_ms(object{n}.p) > 0;\n'
                f'    s->count = pawl_lock_hold_count(object{n}.p);\n')
    return out + '    s->over++;\n}\n\n'


def expected_row(program, i, e):
    step = program.steps[i]
    text = ' '.join(map(str, step))
    over = e.ends < len(program.steps)
    code = 0 if step[1] == 'cancel' else e.code
    held, count = (e.held, e.count) if step[1] in WITH_HOLD and step[2] in program.objects else (-1, -1)
    value = e.value if step[1] in WITH_VALUE else -1
    return f'    {{"{text}", {e.ends if over else "NEVER"}, {code}, {held}, {count}, {value}}},\n'


def c_test(program, engine, expected):
    used = [i for i, e in enumerate(expected) if not e.skipped and program.steps[i][1] != 'end']
    out = [HEAD % {'seed': program.seed, 'engine': engine, 'steps': max(len(program.steps), 1)}]
    out += [f'static pawl_client *client{n};\n' for n in program.clients]
    for n, (_, f) in program.objects.items():
        out.append(f'static struct handle object{n} = {{NULL, {ACTS[f.get("lost", 0)]}, '
                   f'{ACTS[f.get("done", 0)]}, 0}};\n')
    out.append('static struct worker workers[8];\n\nstatic const struct expected expected[STEPS] = {\n')
    out += [expected_row(program, i, e) if i in used else
            f'    {{"left out", -1, 0, -1, -1, -1}}, /* {" ".join(map(str, program.steps[i]))} */\n'
            for i, e in enumerate(expected)]
    out.append('};\n\nstatic struct started started[STEPS] = {\n')
    out += [f'    [{i}] = {{&object{program.steps[i][2]}, {i}}},\n' for i in used
            if program.steps[i][1] in ('start', 'rstart')]
    out.append('};\n' + TABLE_END)
    out += [step_function(program, i, program.steps[i]) for i in used]
    out.append('int main(int argc, char **argv)\n{\n    const char *url = argc > 1 ? argv[1] : "memory:";\n\n'
               '    snprintf(prefix, sizeof prefix, "seed%d.%d", ' f'{program.seed % 1000000}'
               ', (int)getpid());\n')
    for n, f in program.clients.items():
        out.append(f'''    check(-1, "client{n}", pawl_open(&client{n}, url,
        &(pawl_client_options){{.size = sizeof(pawl_client_options), .watchdog_ms = {f["watchdog"]},
                               .timeout_ms = {f["timeout"]}, .cohort = {f["cohort"]}}}, NULL), 0);
''')
    out += [make_object(n, kind, f) for n, (kind, f) in program.objects.items()]
    out.append('    if (failures)\n        return 1;\n')
    for i, s in enumerate(program.steps):
        if s[1] == 'end' and not expected[i].skipped:
            out.append(f'    leave(&workers[{s[0]}]);\n')
        elif i in used:
            out.append(f'    let(&workers[{s[0]}], step{i});\n    settle({i});\n')
    closed = {program.steps[i][2] for i in used if program.steps[i][1] == 'close'}
    out += [f'    pawl_close(client{n});\n' for n in program.clients if n not in closed]
    return ''.join(out + ['    printf("%s\\n", failures ? "failed" : "passed");\n'
                          '    return failures ? 1 : 0;\n}\n'])
