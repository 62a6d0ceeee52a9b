# SPDX-License-Identifier: Apache-2.0
"""A program as a C test: the same calls in the same order, on pawl.h alone.

Each step is a function, done by the thread that the program says. A step that may wait is started and
not waited for; whatever still waits at the end is ended by closing the clients. The codes are printed;
whoever turns the test into a conformance case replaces that by checks.
"""

HEAD = '''/* Seed %(seed)d of the generator, on %(engine)s: cc -std=gnu11 THIS.c -lpawl -lpthread; ./a.out URL */
#include <pawl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static void on_lost(void *arg, pawl_lock *lock, int code)
{
    printf("%%s is lost: %%s, %%s\\n", (const char *)arg, pawl_errname(code),
           lock ? pawl_lost_text(pawl_lock_lost_reason(lock)) : "");
}

static void on_done(void *arg, pawl_lock *lock, int code)
{
    (void)lock;
    printf("%%s is done: %%s\\n", (const char *)arg, pawl_errname(code));
}

struct seat {
    pthread_t id;
    void (*volatile step)(void);
};

static void *sit(void *arg)
{
    struct seat *seat = arg;

    for (;; usleep(1000))
        if (seat->step) {
            seat->step();
            seat->step = NULL;
        }
    return NULL;
}

/* Let the thread do the step; return when it is over, or waits. */
static void let(struct seat *seat, void (*step)(void), int may_wait)
{
    if (!seat->id)
        pthread_create(&seat->id, NULL, sit, seat);
    seat->step = step;
    for (int i = 0; seat->step && (!may_wait || i < 100); i++)
        usleep(1000);
    usleep(20000);
}

static void told(const char *what, int code)
{
    printf("%%s: %%s\\n", what, code > 0 ? "more than 0" : pawl_errname(code));
    fflush(stdout);
}

'''
CALLS = {
    'acquire': 'pawl_lock_acquire({o}, {a}, NULL)',
    'start': 'pawl_lock_acquire_start({o}, {a}, on_done, "{text}")',
    'release': 'pawl_lock_release({o}, NULL)',
    'rstart': 'pawl_lock_release_start({o}, on_done, "{text}")',
    'renew': 'pawl_lock_renew({o}, {a}, NULL)',
    'break': 'pawl_lock_break({o}, NULL)',
    'sacquire': 'pawl_semaphore_acquire({o}, {a}, {b}, NULL)',
    'srelease': 'pawl_semaphore_release({o}, {a}, NULL)',
    'avail': 'pawl_semaphore_available({o}, &number, NULL)',
    'set': 'pawl_latch_set({o}, {a}, NULL)',
    'down': 'pawl_latch_count_down({o}, NULL)',
    'count': 'pawl_latch_count({o}, &number, NULL)',
    'wait': 'pawl_latch_wait({o}, {a}, NULL)',
    'sleep': 'usleep({a} * 1000)',
    'hold': 'usleep({a} * 1000)',
    'expire': 'usleep({a} * 1000)',
    'end': '0 /* the thread ends here */',
    'inspect': '0 /* pawl_inspect */',
    'list': '0 /* pawl_list */',
    'close': 'pawl_close(client{n})',
}
PREFIX = {'lock': 'pawl_lock', 'multi': 'pawl_lock', 'sem': 'pawl_semaphore', 'latch': 'pawl_latch'}
KINDS = ('PAWL_MUTEX', 'PAWL_FAIR', 'PAWL_READ', 'PAWL_WRITE', 'PAWL_SPIN')
ACTS = ('', 'calls release_start', 'frees the handle', 'cancels', 'starts to acquire again', 'asks',
        'makes blocking calls')


def make_lock(n, f):
    parts = [f'.kind = {KINDS[f["kind"]]}', '.on_lost = on_lost', f'.arg = "object{n}"']
    for key, field in (('owner', 'owner'), ('lease', 'lease_ms'), ('max', 'max_hold_ms'),
                       ('atleast', 'at_least_ms')):
        if f.get(key):
            parts.append(f'.{field} = {f[key]}')
    notes = ''.join(f'    /* its {w} callback {ACTS[f[w]]} */\n' for w in ('lost', 'done') if f.get(w))
    return notes + f'''    pawl_lock_new(&object{n}, client{f["client"]}, "name{f["name"]}",
                  &(pawl_lock_options){{.size = sizeof(pawl_lock_options), {", ".join(parts)}}}, NULL);
'''


def make_object(n, kind, f):
    if kind == 'lock':
        return make_lock(n, f)
    if kind == 'multi':
        members = ', '.join('object' + m for m in f['members'].split(','))
        return f'''    pawl_multi_new(&object{n}, (pawl_lock *[]){{{members}}}, {len(members.split(","))}, NULL);
'''
    if kind == 'latch':
        return f'    pawl_latch_new(&object{n}, client{f["client"]}, "name{f["name"]}", NULL);\n'
    return f'''    pawl_semaphore_new(&object{n}, client{f["client"]}, "name{f["name"]}",
                       &(pawl_semaphore_options){{.size = sizeof(pawl_semaphore_options),
                                                 .permits = {f["permits"]}, .lease_ms = {f["lease"]}}},
                       NULL);
'''


def step_call(program, step):
    thread, verb, n, a, b = step
    kind = program.objects[n][0] if n in program.objects else 'lock'
    if verb in ('cancel', 'free') and verb not in CALLS:
        call = f'{PREFIX[kind]}_{verb}(object{n})'
        return call if verb == 'cancel' else f'({call}, 0)'
    wait = 'PAWL_FOREVER' if a == -1 else a
    return CALLS[verb].format(o=f'object{n}', n=n, a=wait, b=b, text=f'step of thread {thread}')


def c_test(program, engine):
    out = [HEAD % {'seed': program.seed, 'engine': engine}]
    for n in program.clients:
        out.append(f'static pawl_client *client{n};\n')
    for n, (kind, _) in program.objects.items():
        out.append(f'static {PREFIX[kind]} *object{n};\n')
    out.append('static struct seat seats[8];\nstatic int64_t number;\n\n')
    for i, s in enumerate(program.steps):
        text = ' '.join(map(str, s))
        out.append(f'static void step{i}(void)\n{{\n    told("{text}", {step_call(program, s)});\n}}\n\n')
    out.append('int main(int argc, char **argv)\n{\n    const char *url = argc > 1 ? argv[1] : "memory:";\n\n')
    for n, f in program.clients.items():
        out.append(f'''    pawl_open(&client{n}, url,
              &(pawl_client_options){{.size = sizeof(pawl_client_options),
                                     .watchdog_ms = {f["watchdog"]}, .cohort = {f["cohort"]}}}, NULL);
''')
    for n, (kind, f) in program.objects.items():
        out.append(make_object(n, kind, f))
    for i, s in enumerate(program.steps):
        waits = s[1] in ('acquire', 'sacquire', 'wait') and (s[4] if s[1] == 'sacquire' else s[3])
        out.append(f'    let(&seats[{s[0]}], step{i}, {int(bool(waits))});\n')
    closed = {s[2] for s in program.steps if s[1] == 'close'}
    for n in program.clients:
        if n not in closed:
            out.append(f'    told("close", pawl_close(client{n}));\n')
    return ''.join(out + ['    (void)number;\n    return 0;\n}\n'])
