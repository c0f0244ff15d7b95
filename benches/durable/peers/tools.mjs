// What the peers have in common: servers, what the system knows of their processes, texts, figures.

import { spawn } from "node:child_process";
import fs from "node:fs";
import net from "node:net";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

export { sleep };

/** The time in milliseconds since 1970, with fractions. */
export const now = () => performance.timeOrigin + performance.now();

/** The key of timer `n`: 16 bytes. */
export const keyOf = (n) => "t" + String(n).padStart(15, "0");

/** The payload of timer `n`: JSON of 64 bytes. */
export function payloadOf(n, due) {
  const payload = { due, n, pad: "" };
  payload.pad = "x".repeat(64 - JSON.stringify(payload).length);
  return payload;
}

/** SplitMix64 cut to 32 bits, so that each peer gets the same moments. */
export function chance(seed) {
  let state = BigInt(seed);
  const mask = (1n << 64n) - 1n;
  return () => {
    state = (state + 0x9e3779b97f4a7c15n) & mask;
    let z = state;
    z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & mask;
    z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & mask;
    return Number((z ^ (z >> 31n)) >> 32n) / 2 ** 32;
  };
}

/** A quantile of numbers that are in order. */
export const quantile = (sorted, part) =>
  sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))];

/** Starts a server that dies with the turn at the latest. */
export function serve(program, args, log) {
  const output = fs.openSync(log, "a");
  const child = spawn(program, args, { stdio: ["ignore", output, output] });
  child.on("error", (error) => {
    console.error(`${program}: ${error.message}`);
    process.exit(1);
  });
  process.on("exit", () => child.kill("SIGKILL"));
  return child;
}

/** Waits until a port accepts a connection. */
export async function reachable(port, patience = 60_000) {
  for (const begin = now(); now() - begin < patience; await sleep(5)) {
    const connected = await new Promise((resolve) => {
      const socket = net.connect(port, "127.0.0.1");
      socket.on("connect", () => resolve(true)).on("error", () => resolve(false));
      socket.on("connect", () => socket.destroy());
    });
    if (connected) return;
  }
  throw new Error(`nothing answers on port ${port}`);
}

/** A port that is free now. */
export const freePort = () =>
  new Promise((resolve) => {
    const server = net.createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });

/** The bytes of a folder on the disk, as `du` counts them. */
export function diskBytes(folder, without = []) {
  let bytes = 0;
  for (const entry of fs.readdirSync(folder, { withFileTypes: true })) {
    if (without.includes(entry.name)) continue;
    const at = path.join(folder, entry.name);
    try {
      bytes += entry.isDirectory() ? diskBytes(at) : fs.statSync(at).blocks * 512;
    } catch (error) {
      if (error.code !== "ENOENT") throw error;
    }
  }
  return bytes;
}

/** The process and its children. */
export function family(pid) {
  const pids = [pid];
  for (const name of fs.readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const stat = fs.readFileSync(`/proc/${name}/stat`, "utf8");
      if (Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]) === pid) pids.push(Number(name));
    } catch {
      // The process has ended.
    }
  }
  return pids;
}

/** The memory of processes in bytes; pages that they share count once. */
export function ramBytes(pids) {
  let bytes = 0;
  for (const pid of pids) {
    try {
      const pss = /^Pss:\s+(\d+)/m.exec(fs.readFileSync(`/proc/${pid}/smaps_rollup`, "utf8"));
      bytes += Number(pss[1]) * 1024;
    } catch {
      // The process has ended.
    }
  }
  return bytes;
}

/** The processor time of processes and of their children that have ended, in seconds. */
export function cpuSeconds(pids) {
  let ticks = 0;
  for (const pid of pids) {
    try {
      const stat = fs.readFileSync(`/proc/${pid}/stat`, "utf8");
      const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
      ticks += Number(fields[11]) + Number(fields[12]) + Number(fields[13]) + Number(fields[14]);
    } catch {
      // The process has ended.
    }
  }
  return ticks / 100;
}
