// NATS JetStream with scheduled messages: a stream that has the timers under subjects of their own, and delivers them
// on another.

import fs from "node:fs";
import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { connect, headers } from "@nats-io/transport-node";
import { diskBytes, freePort, ramBytes, reachable, serve } from "./tools.mjs";

const SERVER = process.env.NATS_SERVER ?? new URL("venv/bin/nats-server", import.meta.url).pathname;
const TIMEOUT = 60_000;

/** One schedule has a subject: a second with it takes its place. */
const subjectOf = (key) => `timer.${key}`;

function headersOf(due) {
  const all = headers();
  all.set("Nats-Schedule", `@at ${new Date(due).toISOString()}`);
  all.set("Nats-Schedule-Target", "due");
  return all;
}

const messageOf = (key, payload, due) => [subjectOf(key), JSON.stringify(payload), { headers: headersOf(due), timeout: TIMEOUT }];

export class Peer {
  constructor(dir, { sync }) {
    Object.assign(this, { dir, sync });
  }

  async start() {
    this.port ??= await freePort();
    this.spawn(this.sync);
    await this.connect();
    await this.manager.streams.add({
      name: "q",
      subjects: ["timer.*", "due"],
      retention: "workqueue",
      storage: "file",
      allow_msg_schedules: true,
      allow_atomic: true,
    });
    await this.manager.consumers.add("q", { durable_name: "c", filter_subject: "due", ack_policy: "explicit" });
  }

  /** `sync` is the time between two fsyncs, or `always` for one at each write. */
  spawn(sync) {
    const file = `${this.dir}.conf`;
    const lines = [`listen: "127.0.0.1:${this.port}"`, `jetstream { store_dir: "${this.dir}", sync_interval: ${sync} }`];
    fs.writeFileSync(file, lines.join("\n") + "\n");
    this.server = serve(SERVER, ["-c", file], `${this.dir}.log`);
  }

  async connect() {
    await reachable(this.port);
    this.connection = await connect({ servers: `127.0.0.1:${this.port}`, reconnect: false, timeout: TIMEOUT });
    this.stream = jetstream(this.connection, { timeout: TIMEOUT });
    this.manager = await jetstreamManager(this.connection, { timeout: TIMEOUT });
  }

  pids = () => [this.server.pid];

  create = (...timer) => this.stream.publish(...messageOf(...timer));

  /** One atomic batch; while a stock is filled none, since the messages of a batch keep its headers on the disk. */
  async createMany([first, ...timers]) {
    if (this.isRelaxed) return Promise.all([first, ...timers].map((timer) => this.create(...timer)));
    const last = timers.pop();
    const batch = await this.stream.startBatch(...messageOf(...first));
    for (const timer of timers) batch.add(...messageOf(...timer));
    await batch.commit(...messageOf(...last));
  }

  cancel = async (key) => (await this.manager.streams.purge("q", { filter: subjectOf(key) })).purged === 1;

  replace = (...timer) => this.create(...timer);

  async pending() {
    const { state } = await this.manager.streams.info("q", { subjects_filter: "due" });
    return state.messages - (state.subjects?.due ?? 0);
  }

  async consume(onFire) {
    const consumer = await this.stream.consumers.get("q", "c");
    this.messages = await consumer.consume({
      max_messages: 500,
      callback: (message) => {
        onFire(message.json());
        message.ack();
      },
    });
  }

  async stopConsuming() {
    await this.messages.close();
    await this.connection.flush();
  }

  disk = () => diskBytes(this.dir);
  ram = () => ramBytes(this.pids());

  /** The time between two fsyncs is an option of the start. */
  relax = () => this.again(true);
  strict = () => this.again(false);

  async again(isRelaxed) {
    this.server.kill("SIGTERM");
    await new Promise((resolve) => this.server.on("exit", resolve));
    this.isRelaxed = isRelaxed;
    this.spawn(isRelaxed ? "2m" : this.sync);
    await this.connect();
  }

  crash() {
    this.server.kill("SIGKILL");
    return new Promise((resolve) => this.server.on("exit", resolve));
  }

  async restart() {
    this.spawn(this.sync);
    await this.connect();
  }

  async close() {
    this.server.kill("SIGKILL");
  }
}
