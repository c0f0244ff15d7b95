// One turn of a peer: `node run.mjs '{"peer": ..., "config": {...}, "workload": ..., "sizes": {...}, "dir": ...}'`.
//
// Prints a line of JSON with the figures. A check that fails ends the turn with an error.

import fs from "node:fs";
import readline from "node:readline";
import { chance, cpuSeconds, keyOf, now, payloadOf, quantile, sleep } from "./tools.mjs";

const { peer: name, config, workload, sizes, dir } = JSON.parse(process.argv[2]);
const { Peer } = await import(`./${name}.mjs`);
const DAY = 86_400_000;

const check = (holds, what) => {
  if (!holds) throw new Error(`the check failed: ${what}`);
};

const random = chance(1);
/** A moment in 1 to 30 days. */
const far = () => Math.floor(Date.now() + DAY * (1 + 29 * random()));

/** Calls `each` for 0 to `total`, `count` of them waiting at a time. */
async function waiting(count, total, each) {
  const times = new Float64Array(total);
  let next = 0;
  const begin = now();
  const serve = async () => {
    while (next < total) {
      const index = next++;
      const start = performance.now();
      await each(index);
      times[index] = performance.now() - start;
    }
  };
  await Promise.all(Array.from({ length: count }, serve));
  const seconds = (now() - begin) / 1000;
  times.sort();
  return { rate: total / seconds, p50: quantile(times, 0.5), p99: quantile(times, 0.99) };
}

/** Creates the timers `from` to `to`, due at `due(n)`, in batches of 1,000. */
async function fill(peer, from, to, due) {
  for (let n = from; n < to; n += 1000) {
    const count = Math.min(1000, to - n);
    await peer.createMany(Array.from({ length: count }, (_, i) => timer(n + i, due(n + i))));
  }
}

const timer = (n, due) => [keyOf(n), payloadOf(n, due), due];

/** Notes each delivery. */
class Deliveries {
  constructor(from, count) {
    Object.assign(this, { from, count, fired: new Uint8Array(count), first: 0, last: 0, distinct: 0, doubled: 0, early: 0 });
    this.late = [];
    this.all = new Promise((resolve) => (this.done = resolve));
  }

  note = ({ n, due }) => {
    const at = now();
    const index = n - this.from;
    if (!(index >= 0 && index < this.count)) return;
    if (this.fired[index]++ > 0) {
      this.doubled++;
      return;
    }
    this.first ||= at;
    this.last = at;
    if (at < due) this.early++;
    this.late.push(at - due);
    if (++this.distinct === this.count) this.done();
  };

  /** Waits until all have fired. */
  async end(patience) {
    await Promise.race([this.all, sleep(patience)]);
    check(this.early === 0, `${this.early} timers fired early`);
    check(this.distinct === this.count, `${this.count - this.distinct} of ${this.count} timers did not fire`);
  }
}

const workloads = {
  async create(peer) {
    const numbers = {};
    const ram = peer.ram();
    const spentByAll = await spent(peer);
    let from = 0;
    const part = async (name, total, act) => {
      if (!total) return;
      const cpu = () => cpuSeconds([...peer.pids(), process.pid]);
      const spentByPart = await spent(peer);
      const before = cpu();
      const { rate, p50, p99 } = await act();
      numbers[`${name}_rate`] = rate;
      numbers[`${name}_p50_ms`] = p50;
      numbers[`${name}_p99_ms`] = p99;
      numbers[`${name}_cpu_us`] = ((cpu() - before) / total) * 1e6;
      await spentByPart(numbers, total, `${name}_`);
      from += total;
      check((await peer.pending()) === from, `${name}: not all timers are there`);
    };
    const one = (index) => peer.create(...timer(from + index, far()));
    await part("one", sizes.one, () => waiting(1, sizes.one, one));
    await part("waiting", sizes.waiting, () => waiting(sizes.callers ?? 64, sizes.waiting, one));
    await part("batch", sizes.batch, async () => {
      const base = from;
      const batches = sizes.batch / 1000;
      const times = await waiting(1, batches, (batch) =>
        fill(peer, base + batch * 1000, base + (batch + 1) * 1000, far),
      );
      return { ...times, rate: times.rate * 1000 };
    });
    numbers.ram = (peer.ram() - ram) / from;
    await spentByAll(numbers, from, "");
    return numbers;
  },

  async late(peer) {
    const count = sizes.rate * sizes.seconds;
    const begin = Date.now() + sizes.lead * 1000;
    await fill(peer, 0, count, () => Math.floor(begin + random() * sizes.seconds * 1000));
    check(Date.now() < begin, "the window began before all timers were created");
    const deliveries = new Deliveries(0, count);
    await peer.consume(deliveries.note);
    const cpu = () => cpuSeconds([...peer.pids(), process.pid]);
    const cpuBefore = cpu();
    await deliveries.end((sizes.lead + sizes.seconds) * 1000 + 60_000);
    const cpu_us = ((cpu() - cpuBefore) / count) * 1e6;
    await peer.stopConsuming();
    check(deliveries.doubled === 0, `${deliveries.doubled} doubled deliveries`);
    const numbers = { cpu_us };
    quantiles(numbers, "", deliveries.late);
    return numbers;
  },

  async herd(peer) {
    const due = Date.now() + sizes.lead * 1000;
    const before = peak(peer);
    const spentByAll = await spent(peer);
    await fill(peer, 0, sizes.timers, () => due);
    check(Date.now() < due, "the timers were due before all were created");
    const deliveries = new Deliveries(0, sizes.timers);
    await peer.consume(deliveries.note);
    const cpu = () => cpuSeconds([...peer.pids(), process.pid]);
    const cpuBefore = cpu();
    await deliveries.end(sizes.lead * 1000 + 120_000);
    const cpu_us = ((cpu() - cpuBefore) / sizes.timers) * 1e6;
    await peer.stopConsuming();
    check(deliveries.doubled === 0, `${deliveries.doubled} doubled deliveries`);
    const seconds = (deliveries.last - due) / 1000;
    const numbers = { cpu_us, rate: sizes.timers / seconds, last_ms: seconds * 1000, first_ms: deliveries.first - due, peak_mb: (peak(peer) - before) / 1e6 };
    await spentByAll(numbers, sizes.timers, "");
    return numbers;
  },

  /** Creates timers and delivers them at the same time, while another transaction holds a snapshot. */
  async held(peer) {
    const perSecond = 50;
    const each = sizes.rate / perSecond;
    const ticks = perSecond * sizes.seconds;
    const count = each * ticks;
    const deliveries = new Deliveries(0, count);
    await peer.consume(deliveries.note);
    await ask({ hold: true });
    const cpu = () => cpuSeconds([...peer.pids(), process.pid]);
    const before = cpu();
    const begin = now() + 3000;
    for (let tick = 0; tick < ticks; tick++) {
      const at = begin + (tick * 1000) / perSecond;
      await sleep(Math.max(0, at - now()));
      await fill(peer, tick * each, (tick + 1) * each, () => Math.floor(at + 500 + random() * 1000));
    }
    const numbers = { behind_ms: Math.max(0, now() - begin - sizes.seconds * 1000) };
    await deliveries.end(60_000);
    numbers.cpu_us = ((cpu() - before) / count) * 1e6;
    await peer.stopConsuming();
    check(deliveries.doubled === 0, `${deliveries.doubled} doubled deliveries`);
    const third = Math.floor(count / 3);
    quantiles(numbers, "first_", deliveries.late.slice(0, third));
    quantiles(numbers, "last_", deliveries.late.slice(count - third));
    numbers.growth = numbers.last_p99_ms / numbers.first_p99_ms;
    return numbers;
  },

  async stock(peer) {
    const numbers = {};
    const total = sizes.timers;
    const [ram, disk] = [peer.ram(), await peer.disk()];
    await peer.relax();
    await fill(peer, 0, total, far);
    await peer.strict();
    check((await peer.pending()) === total, "not all timers are there");
    await sleep(sizes.quiet * 1000);
    numbers.ram = (peer.ram() - ram) / total;
    numbers.disk = ((await peer.disk()) - disk) / total;

    // Nothing is due, and a consumer waits.
    await peer.consume(() => {});
    await sleep(2000);
    await measured({ idle: [...peer.pids(), process.pid] }, numbers);
    await peer.stopConsuming();

    let left = total;
    if (peer.cancel) {
      // Each eighth timer or so, in no order.
      const stride = 7919;
      const chosen = (index) => (index * stride) % total;
      let gone = 0;
      const cpu = () => cpuSeconds([...peer.pids(), process.pid]);
      const before = cpu();
      const cancels = await waiting(64, sizes.churn, async (index) => {
        if (await peer.cancel(keyOf(chosen(index)))) gone++;
      });
      numbers.cancel_cpu_us = ((cpu() - before) / sizes.churn) * 1e6;
      numbers.cancel_rate = cancels.rate;
      numbers.cancel_p99_ms = cancels.p99;
      check(gone === sizes.churn, `${gone} of ${sizes.churn} timers were cancelled`);
      check((await peer.pending()) === total - gone, "the cancelled timers are still there");
      await waiting(64, sizes.churn, (index) => peer.create(...timer(chosen(index), far())));
      const replaces = await waiting(64, sizes.replaces, () => peer.replace(...timer(total, far())));
      numbers.replace_rate = replaces.rate;
      numbers.replace_p99_ms = replaces.p99;
      left = total + 1;
      check((await peer.pending()) === left, "replacing one key left more than one timer");
      await sleep(sizes.quiet * 1000);
      numbers.churned_disk = ((await peer.disk()) - disk) / total;
      numbers.churned_ram = (peer.ram() - ram) / total;
    }

    // A part becomes due while nobody consumes; then the server is killed.
    const first = total + 1;
    const due = Date.now() + sizes.lead * 1000;
    await fill(peer, first, first + sizes.overdue, () => due);
    check(Date.now() < due, "the timers were due before all were created");
    await sleep(due - Date.now() + 1500);
    await peer.crash();
    const begin = now();
    await peer.restart();
    const deliveries = new Deliveries(first, sizes.overdue);
    const consuming = peer.consume(deliveries.note);
    await peer.create(...timer(first + sizes.overdue, far()));
    numbers.accepted_s = (now() - begin) / 1000;
    await consuming;
    await deliveries.end(300_000);
    numbers.fired_s = (deliveries.first - begin) / 1000;
    numbers.all_s = (deliveries.last - begin) / 1000;
    await sleep(500);
    numbers.doubled = deliveries.doubled;
    await peer.stopConsuming();
    const lost = left + 1 - (await peer.pending());
    check(lost === 0, `${lost} timers were lost`);
    numbers.lost = lost;
    return numbers;
  },
};

/** Adds quantiles of lateness. */
function quantiles(numbers, prefix, late) {
  late.sort((a, b) => a - b);
  const parts = { p50: 0.5, p90: 0.9, p99: 0.99, p999: 0.999 };
  for (const [key, part] of Object.entries(parts)) numbers[`${prefix}${key}_ms`] = quantile(late, part);
  numbers[`${prefix}max_ms`] = late[late.length - 1];
  numbers[`${prefix}min_ms`] = late[0];
}

/** Begins to count the bytes of log and of tables, if the server is the book's. Returns a function that adds them. */
async function spent(peer) {
  if (!peer.url) return async () => {};
  const before = await ask({ server: true });
  return async (numbers, count, prefix) => {
    const after = await ask({ server: true });
    for (const key of ["wal", "disk"]) numbers[`${prefix}${key}`] = (after[key] - before[key]) / count;
  };
}

/** The greatest memory of the server's processes so far. */
function peak(peer) {
  let bytes = 0;
  for (const pid of peer.pids()) {
    try {
      const status = fs.readFileSync(`/proc/${pid}/status`, "utf8");
      bytes += Number(/^VmHWM:\s+(\d+)/m.exec(status)[1]) * 1024;
    } catch {
      // The process has ended.
    }
  }
  return bytes;
}

const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** Asks the book for something, and returns its answer. */
async function ask(what) {
  console.log(JSON.stringify(what));
  const { value } = await lines.next();
  return JSON.parse(value);
}

/** Has the book measure something from outside while this process waits. */
const measured = async (what, numbers) => Object.assign(numbers, await ask(what));

const peer = new Peer(dir, config);
peer.ask = ask;
await peer.start();
try {
  const numbers = await workloads[workload](peer);
  console.log(JSON.stringify({ numbers }));
} catch (error) {
  console.error(error);
  process.exitCode = 1;
}
await peer.close();
process.exit();
