// SPDX-License-Identifier: Apache-2.0
//
// The lock packages of npm behind one line in, one line out (interop/README.md has the protocol):
// node driver.js redlock4 | redlock5 | redis-semaphore
//
// Commands of one ID are carried out in order, each ID for itself, so a wait blocks only its own.
'use strict';

const path = require('path');
const readline = require('readline');

// The packages are where interop/setup put them, not beside this file.
const load = require('module').createRequire(path.join(process.cwd(), 'x.js'));
const Redis = load('ioredis');

const RETRY_MS = 200; // redlock's default, which the waits below are counted in
const BUSY = Symbol('busy');

const clients = new Map();
const handles = new Map();
const tails = new Map();

function say(id, status, words) {
  const us = process.hrtime.bigint() / 1000n;
  process.stdout.write(`${id} ${status} ${us} ${words}`.replace(/\n/g, ' ').trim() + '\n');
}

const tries = (wait) => (wait < 0 ? -1 : Math.ceil(wait / RETRY_MS));

// ---- The peers: each makes a handle with acquire(wait), release(), extend(ms), held(), token() --

function redlock4(client, id, name, lease) {
  const Redlock = load('redlock4');
  let lock = null;
  return {
    async acquire(wait) {
      const redlock = new Redlock([client], { retryCount: tries(wait) });
      try {
        lock = await redlock.lock(name, lease);
      } catch (error) {
        if (error.name === 'LockError')
          return BUSY;
        throw error;
      }
      return lock.value;
    },
    async release() {
      if (!lock)
        throw new Error('never acquired');
      await lock.unlock();
    },
    extend: async (ms) => { await lock.extend(ms); },
    held: () => Number(lock !== null && lock.expiration > Date.now()),
    token: () => (lock ? lock.value : ''),
  };
}

// With renew: the lock is held inside using(), which extends it until the routine ends.
function redlock5(client, id, name, lease, renew) {
  const { default: Redlock } = load('redlock5');
  let lock = null;
  let end = null;
  let ended = null;
  let signal = null;

  function using(redlock, wait) {
    return new Promise((resolve, reject) => {
      ended = redlock.using([name], lease, { retryCount: tries(wait) }, (given) => {
        signal = given;
        signal.addEventListener('abort', () => say(id, 'event', 'lost'));
        resolve('');
        return new Promise((done) => { end = done; });
      });
      ended.catch(reject);
    });
  }

  return {
    async acquire(wait) {
      // Of releasing and extending: try twice, and extend early (default: 500 ms before the end).
      const redlock = new Redlock([client],
                                  { retryCount: 1, automaticExtensionThreshold: lease * 0.6 });
      redlock.on('error', () => {}); // one for every vote against
      try {
        if (renew)
          return await using(redlock, wait);
        lock = await redlock.acquire([name], lease, { retryCount: tries(wait) });
      } catch (error) {
        if (error.name === 'ExecutionError')
          return BUSY;
        throw error;
      }
      return lock.value;
    },
    async release() {
      if (!lock && !end)
        throw new Error('never acquired');
      if (!renew)
        return void await lock.release();
      end();
      await ended;
    },
    extend: async (ms) => { lock = await lock.extend(ms); },
    held: () => Number(renew ? signal !== null && !signal.aborted
                             : lock !== null && lock.expiration > Date.now()),
    token: () => (lock ? lock.value : ''),
  };
}

function redisSemaphore(client, id, name, lease, renew) {
  const { Mutex } = load('redis-semaphore');
  let mutex = null;

  function make(wait) {
    return new Mutex(client, name, {
      lockTimeout: lease,
      acquireTimeout: wait < 0 ? 1e9 : Math.max(wait, 1000),
      acquireAttemptsLimit: wait === 0 ? 1 : Number.POSITIVE_INFINITY,
      refreshInterval: renew ? Math.round(lease / 3) : 0, // default: 0.8 of the lease
      onLockLost: () => say(id, 'event', 'lost'),
    });
  }

  return {
    async acquire(wait) {
      mutex = make(wait);
      return await mutex.tryAcquire() ? mutex.identifier : BUSY;
    },
    release: async () => { await mutex.release(); },
    extend: async () => { throw new Error('redis-semaphore has no extend'); },
    held: () => Number(mutex !== null && mutex.isAcquired),
    token: () => (mutex ? mutex.identifier : ''),
  };
}

const makers = { redlock4, redlock5, 'redis-semaphore': redisSemaphore };
const make = makers[process.argv[2]];

// ---- Commands -----------------------------------------------------------------------------------

async function open(id, port) {
  const client = new Redis(Number(port), '127.0.0.1', { lazyConnect: true });
  client.on('error', () => {});
  await client.connect();
  clients.set(id, client);
}

function lock(id, kind, name, lease, renew) {
  if (kind !== 'mutex')
    throw new Error(`no such kind: ${kind}`);
  const client = clients.get(id.split('.')[0]);
  handles.set(id, make(client, id, name, Number(lease), renew === 'renew'));
}

async function serve([verb, id, ...args]) {
  if (verb === 'open')
    return open(id, args[0]);
  if (verb === 'close')
    return clients.get(id).disconnect();
  if (verb === 'lock')
    return lock(id, ...args);
  const handle = handles.get(id);
  if (!handle)
    throw new Error('no such handle');
  if (verb === 'try')
    return handle.acquire(0);
  if (!['acquire', 'release', 'extend', 'held', 'token'].includes(verb))
    throw new Error(`this kind does not know ${verb}`);
  return handle[verb](...args.map(Number));
}

async function answer(words) {
  try {
    const result = await serve(words);
    if (result === BUSY)
      say(words[1], 'busy', '');
    else
      say(words[1], 'ok', result === undefined ? '' : String(result));
  } catch (error) {
    say(words[1], 'error', `${error.name}: ${error.message}`);
  }
}

readline.createInterface({ input: process.stdin }).on('line', (line) => {
  const words = line.trim().split(/ +/);
  if (words[0] === 'die')
    process.kill(process.pid, 'SIGKILL');
  tails.set(words[1], (tails.get(words[1]) || Promise.resolve()).then(() => answer(words)));
}).on('close', () => process.exit(0));
