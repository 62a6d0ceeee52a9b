// SPDX-License-Identifier: Apache-2.0
//
// node worker.js LIBRARY HOST:PORT: measures a lock library of Node for compare.py. LIBRARY is
// redlock or redis-semaphore. Contenders are asynchronous functions of one process; each has a
// client of its own, except with `shared`.
'use strict';

const path = require('path');
const readline = require('readline');

// The packages are where interop/setup put them, not beside this file.
const load = require('module').createRequire(path.join(process.cwd(), 'x.js'));
const Redis = load('ioredis');
const WARM_UP = 3;
const SAMPLES = 4000;
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
    const { Mutex } = load('redis-semaphore');
    return (name) => {
      const mutex = new Mutex(client, name, { lockTimeout: 30000, acquireTimeout: 600000 });
      return { acquire: () => mutex.acquire(), release: () => mutex.release() };
    };
  },
};

async function contend(lock, number, same, meeting) {
  const times = [];
  for (;;) {
    const began = now();
    await lock.acquire();
    const held = now();
    const changed = meeting.holder !== number;
    meeting.holder = number;
    await lock.release();
    times.push((same ? held : now()) - began);
    if (meeting.stop) // this round ended too late to count for the rate
      return times;
    meeting.rounds++;
    meeting.handovers += changed;
  }
}

async function run(library, address, line, lines) {
  const [word, mode, contenders, ms] = line.split(' ');
  const [host, port] = address.split(':');
  if (word !== 'run')
    throw new Error(line);
  const connect = () => new Redis({ host, port: Number(port) });
  const clients = mode === 'shared' ? [connect()] :
    Array.from({ length: Number(contenders) }, connect);
  const makers = clients.map((c) => libraries[library](c));
  const locks = Array.from({ length: Number(contenders) }, (_, i) =>
    makers[i % makers.length](`bench-${mode === 'same' ? 0 : i}`));
  await Promise.all(locks.map(async (lock) => {
    for (let i = 0; i < WARM_UP; i++) {
      await lock.acquire();
      await lock.release();
    }
  }));
  console.log('ready');
  await lines.next();
  const meeting = { stop: false, holder: -1, rounds: 0, handovers: 0 };
  const before = process.cpuUsage();
  setTimeout(() => { meeting.stop = true; }, Number(ms));
  const parts = await Promise.all(locks.map((l, i) =>
    contend(l, i, mode === 'same', meeting)));
  const used = process.cpuUsage(before);
  const step = (p) => Math.max(1, Math.floor(p.length / SAMPLES));
  const samples = parts.flatMap((p) => p.filter((_, i) => i % step(p) === 0));
  const cpu = used.user + used.system;
  console.log(['ran', meeting.rounds, meeting.handovers, cpu, ...samples].join(' '));
  clients.forEach((c) => c.disconnect());
}

async function main() {
  const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  for (let l = await lines.next(); !l.done; l = await lines.next())
    await run(process.argv[2], process.argv[3], l.value, lines);
}

main();
