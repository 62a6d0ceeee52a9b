/* SPDX-License-Identifier: Apache-2.0
 *
 * app.js - the page of pawl serve. Names and labels come from strangers: they reach the page only
 * as textContent, with characters that do something instead of showing something made visible.
 *
 * The overview fetches all locks once, then applies the changes that the server sends. It draws
 * only the rows that can be seen, so ten thousand locks cost no more than thirty.
 */
'use strict';

const $ = (id) => document.getElementById(id);
const ROW = 30;
const HARMFUL = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

const shown = (text) => String(text).replace(HARMFUL,
  (c) => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'));

function el(tag, cls, text) {
  const e = document.createElement(tag);
  if (cls) e.className = cls;
  if (text !== undefined) e.textContent = shown(text);
  return e;
}

function duration(ms) {
  if (ms === null || ms === undefined || ms < 0) return '–';
  const s = ms / 1000;
  if (s < 1) return Math.round(ms) + ' ms';
  if (s < 60) return (s < 10 ? s.toFixed(1) : Math.round(s)) + ' s';
  if (s < 3600) return Math.floor(s / 60) + ' min ' + Math.floor(s % 60) + ' s';
  if (s < 86400) return Math.floor(s / 3600) + ' h ' + Math.floor(s / 60 % 60) + ' min';
  return Math.floor(s / 86400) + ' d ' + Math.floor(s / 3600 % 24) + ' h';
}

/* ---- light and dark ---------------------------------------------------------------------------- */

function store(key, value) {
  try {
    if (value === undefined) return localStorage.getItem(key);
    localStorage.setItem(key, value);
  } catch (e) { /* no storage: the choice lasts as long as the page */ }
  return null;
}

function theme(choice) {
  if (choice) document.documentElement.dataset.theme = choice;
}

theme(store('pawl-theme'));
$('theme').addEventListener('click', () => {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === 'dark'
    : matchMedia('(prefers-color-scheme: dark)').matches;
  theme(dark ? 'light' : 'dark');
  store('pawl-theme', dark ? 'light' : 'dark');
});

/* ---- state of the service ---------------------------------------------------------------------- */

const status = {ok: false, error: '', taken: 0, interval: 2000, live: false, heard: 0};

function heard(s) {
  status.ok = s.ok;
  status.error = s.error || '';
  status.taken = s.age_ms === null ? null : performance.now() - s.age_ms;
  status.interval = s.interval_ms;
  status.heard = performance.now();
  $('service').textContent = shown(s.service);
  showStatus();
}

function showStatus() {
  const age = status.taken === null ? null : performance.now() - status.taken;
  const silent = !status.live || performance.now() - status.heard > 3 * status.interval + 15000;
  const bad = silent || !status.ok;
  $('state').className = bad ? 'bad' : '';
  $('state').textContent = age === null ? 'no data yet' : bad ? 'data is ' + duration(age) + ' old'
    : 'live';
  $('trouble').hidden = !bad || !status.heard;
  $('trouble').textContent = $('trouble').hidden ? '' : shown(silent
    ? 'No connection to pawl serve.' : 'The service does not answer: ' + status.error + '.') +
    (age === null ? '' : ' The data below is ' + duration(age) + ' old.');
}

/* ---- plots ------------------------------------------------------------------------------------- */

const SVG = 'http://www.w3.org/2000/svg';

function plot(into, title, values, format, cls) {
  let box = [...into.children].find((c) => c.dataset.title === title);
  if (!box) {
    box = el('div', 'plot ' + (cls || ''));
    box.dataset.title = title;
    const top = el('div', 'top');
    top.append(el('span', '', title), el('b'));
    const svg = document.createElementNS(SVG, 'svg');
    svg.setAttribute('preserveAspectRatio', 'none');
    for (const name of ['area', 'line']) {
      const path = document.createElementNS(SVG, 'path');
      path.setAttribute('class', name);
      path.setAttribute('vector-effect', 'non-scaling-stroke');
      svg.append(path);
    }
    const bottom = el('div', 'top');
    bottom.append(el('span', 'from'), el('span', 'most'), el('span', '', 'now'));
    box.append(top, svg, bottom);
    into.append(box);
  }
  /* Less than an hour of data: the axis begins with the data, but five minutes ago at the latest. */
  const first = values.findIndex((v) => v !== null);
  values = values.slice(Math.min(first < 0 ? 360 : first, values.length - 30));
  box.querySelector('svg').setAttribute('viewBox', `0 0 ${values.length - 1} 64`);
  box.querySelector('.from').textContent = values.length === 360 ? 'one hour ago'
    : Math.round(values.length / 6) + ' min ago';
  const known = values.filter((v) => v !== null);
  const most = Math.max(1, ...known);
  let line = '', area = '', open = false;
  values.forEach((v, i) => {
    if (v === null) {
      if (open) area += `L${i - 1} 64Z`;
      open = false;
      return;
    }
    const y = (62 - 58 * v / most).toFixed(1);
    line += `${open ? 'L' : 'M'}${i} ${y}`;
    area += open ? `L${i} ${y}` : `M${i} 64L${i} ${y}`;
    open = true;
  });
  if (open) area += `L${values.length - 1} 64Z`;
  const paths = box.querySelectorAll('path');
  paths[0].setAttribute('d', area);
  paths[1].setAttribute('d', line);
  box.querySelector('b').textContent = known.length ? format(values[values.length - 1]) : 'no data';
  box.querySelector('.most').textContent = known.length ? 'max ' + format(Math.max(...known)) : '';
}

const count = (v) => v === null ? '–' : String(v);

async function history(name) {
  const h = await (await fetch('/api/v1/history' +
    (name === null ? '' : '?name=' + name))).json();
  const into = $(name === null ? 'plots' : 'l-plots');
  plot(into, name === null ? 'Held' : 'Holders', h.holders, count);
  plot(into, 'Waiting', h.waiters, count, 'waits');
  plot(into, 'Longest hold', h.hold_ms, duration);
  plot(into, 'Longest wait', h.wait_ms, duration, 'waits');
}

/* ---- all locks --------------------------------------------------------------------------------- */

const locks = new Map();
const columns = [
  ['Name', (l) => l.name], ['State', (l) => stateOf(l)], ['Holder', (l) => who(l)],
  ['Since', (l) => age(l.since), 'num'], ['Waiters', (l) => l.waiter_count, 'num'],
  ['Longest wait', (l) => age(l.wait), 'num'], ['Token', (l) => l.token, 'num']];
let order = 4, falling = true, rows = [], stale = true;

/* An instant as a key to sort by: unknown ones are shorter than all others. */
const age = (since) => since === null ? -Infinity : -since;
const instant = (ms) => ms === null ? null : performance.now() - ms;
const stateOf = (l) => l.type === 'latch' ? 'latch ' + l.count
  : l.type === 'semaphore' ? (l.capacity - l.available) + ' of ' + l.capacity
  : l.held ? (l.shared ? 'shared ×' + l.holder_count : 'held') : 'free';
const who = (l) => (l.label || l.program || '') + (l.pid ? ' · ' + l.pid : '') +
  (l.host ? ' @ ' + l.host : '');

function take(l) {
  l.since = instant(l.since_ms);
  l.wait = instant(l.wait_ms);
  l.text = (l.name + '\n' + who(l)).toLowerCase();
  locks.set(l.id, l);
}

function sortRows() {
  const text = $('filter').value.trim().toLowerCase();
  const key = columns[order][1], sign = falling ? -1 : 1;
  rows = [...locks.values()].filter((l) => !text || l.text.includes(text));
  rows.forEach((l) => { l.key = key(l); });
  rows.sort((a, b) => (a.key < b.key ? -sign : a.key > b.key ? sign
    : a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
  $('shown').textContent = rows.length === locks.size ? '' : `${rows.length} of ${locks.size}`;
  $('empty').hidden = locks.size > 0;
  $('space').style.height = Math.max(1, rows.length) * ROW + 'px';
  stale = false;
}

function drawRows() {
  if (stale) sortRows();
  const top = $('scroll').scrollTop, first = Math.max(0, Math.floor(top / ROW) - 5);
  const last = Math.min(rows.length, first + Math.ceil($('scroll').clientHeight / ROW) + 10);
  const made = [];
  for (let i = first; i < last; i++) {
    const l = rows[i], row = el('div', 'row'), link = el('a', '', l.name);
    row.setAttribute('role', 'row');
    link.href = '/lock?name=' + l.id;
    link.title = shown(l.name);
    row.append(link, el('span', l.held ? 'held' : '', stateOf(l)), el('span', '', who(l)),
      el('span', 'num', l.since === null ? '–' : duration(performance.now() - l.since)),
      el('span', 'num' + (l.waiter_count ? ' wait' : ''), l.waiter_count),
      el('span', 'num', l.wait === null ? '–' : duration(performance.now() - l.wait)),
      el('span', 'num', l.token || '–'));
    made.push(row);
  }
  $('rows').style.transform = `translateY(${first * ROW}px)`;
  $('rows').replaceChildren(...made);
}

function drawTiles() {
  let held = 0, waiting = 0, oldest = null, wait = null;
  for (const l of locks.values()) {
    held += l.holder_count;
    waiting += l.waiter_count;
    if (l.since !== null && l.held && (oldest === null || l.since < oldest)) oldest = l.since;
    if (l.wait !== null && (wait === null || l.wait < wait)) wait = l.wait;
  }
  $('n-held').textContent = held;
  $('n-waiting').textContent = waiting;
  $('n-names').textContent = locks.size;
  $('n-oldest').textContent = oldest === null ? '–' : duration(performance.now() - oldest);
  $('n-wait').textContent = wait === null ? '–' : duration(performance.now() - wait);
}

function draw() {
  drawTiles();
  drawRows();
}

let loading = false, missed = 0;

async function reload() {
  const all = await (await fetch('/api/v1/locks')).json();
  locks.clear();
  all.locks.forEach(take);
  stale = true;
  heard(all);
  draw();
  document.body.dataset.ready = all.seq;
  return all.seq;
}

/* Changes that arrive meanwhile are not applied: they may be in the answer or not. */
async function refresh() {
  loading = true;
  try {
    while (await reload() < missed);
  } catch (e) {
    setTimeout(refresh, 2000);
    return;
  }
  loading = false;
}

function overview() {
  $('overview').hidden = false;
  columns.forEach(([name, , cls], i) => {
    const cell = el('span', cls), button = el('button', '', name);
    button.type = 'button';
    button.addEventListener('click', () => {
      falling = order === i ? !falling : i > 2;
      order = i;
      stale = true;
      drawRows();
    });
    cell.append(button);
    $('head').append(cell);
  });
  $('filter').addEventListener('input', () => { stale = true; drawRows(); });
  $('scroll').addEventListener('scroll', () => requestAnimationFrame(drawRows));
  addEventListener('resize', drawRows);
  listen('/api/v1/events', (e) => {
    heard(e);
    missed = Math.max(missed, e.seq);
    if (e.full && !loading) refresh(); /* the first event, or some were missed */
    if (e.full || loading) return;
    (e.changed || []).forEach(take);
    (e.gone || []).forEach((id) => locks.delete(id));
    stale = stale || Boolean((e.changed || []).length + (e.gone || []).length);
    draw();
  });
  keep(() => history(null));
}

/* ---- one lock ---------------------------------------------------------------------------------- */

function people(into, list, waits) {
  if (!list.length) {
    into.replaceChildren(el('p', 'note', waits ? 'Nobody waits.' : 'Nobody holds it.'));
    return;
  }
  const table = el('div', 'people'), head = el('div', 'row head');
  const titles = ['#', 'Program', 'Host', 'Process', waits ? 'Waiting' : 'Held for',
    waits ? '' : 'Lease left', waits ? '' : 'Token'];
  titles.forEach((t, i) => head.append(el('span', i > 2 ? 'num' : '', t)));
  table.append(head);
  list.slice(0, 500).forEach((p, i) => {
    const row = el('div', 'row');
    row.append(el('span', '', i + 1), el('span', '', p.label || p.program || p.owner),
      el('span', '', p.host), el('span', 'num', p.pid || '–'),
      el('span', 'num', duration(p.since_ms)),
      el('span', 'num', waits ? '' : duration(p.lease_ms)),
      el('span', 'num', waits ? '' : p.token || '–'));
    table.append(row);
  });
  into.replaceChildren(table);
  if (list.length > 500) into.append(el('p', 'note', `and ${list.length - 500} more`));
}

function lockPage(name) {
  let seen = null;
  $('lock').hidden = false;
  listen('/api/v1/events?name=' + name, (e) => {
    const l = e.lock;
    heard(e);
    if (!l) return;
    seen = l;
    document.title = shown(l.name) + ' – Pawl';
    $('l-name').textContent = shown(l.name);
    $('l-summary').textContent = shown(l.error || `${l.type}, ${stateOf(l)}, ` +
      `${l.waiter_count} waiting${l.shared ? ', shared' : ''}`);
    people($('l-holders'), l.holders, false);
    people($('l-waiters'), l.waiters, true);
    $('l-break').hidden = !e.allow_break || !l.holders.length;
    document.body.dataset.ready = e.seq;
  });
  keep(() => history(name));
  $('l-break').addEventListener('submit', async (event) => {
    event.preventDefault();
    const holder = seen.holders[0];
    const words = `Break "${shown(seen.name)}", held by ${shown(who(holder) || holder.owner)}?`;
    if (!confirm(words)) return;
    const answer = await fetch(`/api/v1/break?name=${name}&holder_token=${seen.holder_token}`,
      {method: 'POST', headers: {Authorization: 'Bearer ' + $('l-token').value}});
    $('l-result').textContent = shown((await answer.json()).message);
  });
}

/* ---- life -------------------------------------------------------------------------------------- */

function listen(url, fn) {
  const source = new EventSource(url);
  source.onmessage = (m) => { status.live = true; fn(JSON.parse(m.data)); };
  source.onerror = () => { status.live = false; showStatus(); };
}

function keep(fn) {
  const go = () => fn().catch(() => {}).finally(() => setTimeout(go, 10000));
  go();
}

setInterval(() => {
  showStatus();
  if (!$('overview').hidden && !document.hidden) draw();
}, 1000);

if (location.pathname === '/lock') {
  const raw = /[?&]name=([^&]*)/.exec(location.search);
  lockPage(raw ? raw[1] : '');
} else {
  overview();
}
