// SPDX-License-Identifier: Apache-2.0
//
// node worker.js LIBRARY HOST:PORT [first]: measures a lock library of Node for compare.py. LIBRARY
// is redlock or redis-semaphore. Contenders are asynchronous functions of one process; each has a
// client of its own, except with `shared` and `eights`. `permits` is a semaphore of ten.
'use strict';

const path = require('path');
const readline = require('readline');

// The packages are where interop/setup put them, not beside this file.
const load = require('module').createRequire(path.join(process.cwd(), 'x.js'));
const Redis = load('ioredis');
const WARM_UP = 3;
const SAMPLES = 4000;
const PERMITS = 10;
const now = () => Number(process.hrtime.bigint());

const libraries = {
  redlock: (client) => {
    const { default: Redlock } = load('redlock5');
    const redlock = new Redlock([client], { retryCount: -1, retryDelay: 5, retryJitter: 5 });
    redlock.on('error', () => {}); // one for every try of a lock that is taken
    return (name) => {
      let lock;
      return {
        acquire: async () => { lock = await redlock.acquire([name], 30000); },
        release: () => lock.release(),
      };
    };
  },
  'redis-semaphore': (client) => {
    const { Mutex, Semaphore } = load('redis-semaphore');
    const options = { lockTimeout: 30000, acquireTimeout: 600000, retryInterval: 5 };
    return (name, mode) => {
      const mutex = mode === 'permits' ? new Semaphore(client, name, PERMITS, options) :
        new Mutex(client, name, options);
      return { acquire: () => mutex.acquire(), release: () => mutex.release() };
    };
  },
};

async function contend(lock, number, oneName, meeting) {
  const part = { rounds: 0, handovers: 0, times: [], gaps: [] };
  for (;;) {
    const asked = now();
    await lock.acquire();
    const held = now();
    const changed = meeting.holder !== number;
    meeting.holder = number;
    if (oneName && changed && meeting.released > asked)
      part.gaps.push(held - meeting.released);
    meeting.released = now();
    await lock.release();
    part.times.push((oneName ? held : now()) - asked);
    if (meeting.stop) // this round ended too late to count for the rate
      return part;
    part.rounds++;
    part.handovers += changed;
  }
}

function report(parts, cpu, slept, elapsed) {
  const sum = (key) => parts.reduce((n, p) => n + p[key], 0);
  const sample = (key) => parts.flatMap((p) => p[key].filter(
    (_, i) => i % Math.max(1, Math.floor(p[key].length / SAMPLES)) === 0));
  const rounds = parts.map((p) => p.rounds);
  console.log(['ran', `rounds=${sum('rounds')}`, `handovers=${sum('handovers')}`, `cpu_us=${cpu}`,
    `elapsed_us=${Math.round(elapsed / 1000)}`, `fewest=${Math.min(...rounds)}`,
    `most=${Math.max(...rounds)}`, `wakeups=${slept}`, 'times', ...sample('times'), 'gaps',
    ...sample('gaps')].join(' '));
}

const connect = (address) => {
  const [host, port] = address.split(':');
  return new Redis({ host, port: Number(port) });
};

async function run(library, address, line, lines) {
  const [word, mode, count, ms] = line.split(' ');
  const contenders = Number(count);
  if (word !== 'run')
    throw new Error(line);
  const each = { shared: contenders, eights: 8 }[mode] || 1;
  const oneName = mode !== 'own' && mode !== 'shared';
  const clients = Array.from({ length: contenders / each }, () => connect(address));
  const makers = clients.map((c) => libraries[library](c));
  const locks = Array.from({ length: contenders }, (_, i) =>
    makers[Math.floor(i / each)](`bench-${mode}-${oneName ? 0 : i}`, mode));
  await Promise.all(locks.map(async (lock) => {
    for (let i = 0; i < WARM_UP; i++) {
      await lock.acquire();
      await lock.release();
    }
  }));
  console.log('ready');
  await lines.next();
  const meeting = { stop: false, holder: -1, released: 0 };
  const before = process.cpuUsage();
  const slept = process.resourceUsage().voluntaryContextSwitches;
  const began = now();
  let elapsed = 0;
  setTimeout(() => { meeting.stop = true; elapsed = now() - began; }, Number(ms));
  const parts = await Promise.all(locks.map((l, i) => contend(l, i, oneName, meeting)));
  const used = process.cpuUsage(before);
  report(parts, used.user + used.system,
    process.resourceUsage().voluntaryContextSwitches - slept, elapsed);
  clients.forEach((c) => c.disconnect());
}

async function first(library, address) {
  const client = connect(address);
  const lock = libraries[library](client)('bench-first', 'own');
  await lock.acquire();
  await lock.release();
  client.disconnect();
}

async function main() {
  if (process.argv[4] === 'first')
    return first(process.argv[2], process.argv[3]);
  const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  for (let l = await lines.next(); !l.done; l = await lines.next())
    await run(process.argv[2], process.argv[3], l.value, lines);
}

main();
