// SPDX-License-Identifier: Apache-2.0
//
// node bench.js SECONDS PORT,PORT,...: pairs of acquire and release by redlock 5, nobody else there,
// for so long; then one line with the median and the 99th percentile of each, in microseconds.
'use strict';

const path = require('path');

// The packages are where interop/setup put them, not beside this file.
const load = require('module').createRequire(path.join(process.cwd(), 'x.js'));
const Redis = load('ioredis');
const { default: Redlock } = load('redlock5');

const micros = () => Number(process.hrtime.bigint() / 1000n);

function quantiles(values) {
  values.sort((a, b) => a - b);
  return `${values[values.length >> 1]} ${values[Math.floor(values.length * 0.99)]}`;
}

async function main(seconds, ports) {
  const clients = ports.map((port) => new Redis(Number(port)));
  const redlock = new Redlock(clients, { retryCount: 10 });
  const acquires = [];
  const releases = [];
  redlock.on('error', () => {}); // one for every vote against
  for (const client of clients)
    client.on('error', () => {}); // of a server that is down
  for (let warm = 20, end = 0; warm > 0 || micros() < end; warm--) {
    const began = micros();
    const lock = await redlock.acquire([`bench:${process.pid}`], 30000);
    const got = micros();
    await lock.release();
    if (warm === 1)
      end = micros() + seconds * 1e6;
    if (warm < 1) {
      acquires.push(got - began);
      releases.push(micros() - got);
    }
  }
  console.log(quantiles(acquires), quantiles(releases));
  process.exit(0);
}

main(Number(process.argv[2]), process.argv[3].split(','));
