// BullMQ on a Redis of its own.

import { Queue, Worker } from "bullmq";
import { Redis } from "ioredis";
import { diskBytes, freePort, ramBytes, reachable, serve } from "./tools.mjs";

export class Peer {
  constructor(dir, { appendfsync }) {
    Object.assign(this, { dir, appendfsync });
  }

  async start() {
    this.port ??= await freePort();
    this.spawn();
    await this.connect();
  }

  spawn() {
    const args = ["--port", this.port, "--bind", "127.0.0.1", "--dir", this.dir, "--save", ""];
    args.push("--appendonly", "yes", "--appendfsync", this.appendfsync);
    this.server = serve("redis-server", args.map(String), `${this.dir}/log`);
  }

  async connect() {
    await reachable(this.port);
    // Commands wait while Redis loads its file.
    this.connection = { host: "127.0.0.1", port: this.port, maxRetriesPerRequest: null, retryStrategy: () => 20 };
    this.queue = new Queue("q", {
      connection: this.connection,
      defaultJobOptions: { removeOnComplete: true, removeOnFail: true },
    });
    this.queue.on("error", () => {});
    this.redis = new Redis(this.connection);
    this.redis.on("error", () => {});
    await this.queue.waitUntilReady();
  }

  pids = () => [this.server.pid];

  create = (key, payload, due) =>
    this.queue.add("t", payload, { jobId: key, delay: Math.max(0, due - Date.now()) });

  createMany = (timers) =>
    this.queue.addBulk(
      timers.map(([key, payload, due]) => ({
        name: "t",
        data: payload,
        opts: { jobId: key, delay: Math.max(0, due - Date.now()) },
      })),
    );

  cancel = async (key) => (await this.queue.remove(key)) === 1;

  // A delayed job with the same deduplication id takes the place of the old one.
  replace = (key, payload, due) => {
    const delay = Math.max(0, due - Date.now());
    const deduplication = { id: key, ttl: delay, extend: true, replace: true };
    return this.queue.add("t", payload, { delay, deduplication });
  };

  pending = () => this.queue.getDelayedCount();

  async consume(onFire) {
    this.worker = new Worker("q", async (job) => onFire(job.data), {
      connection: this.connection,
      concurrency: 100,
    });
    this.worker.on("error", () => {});
    await this.worker.waitUntilReady();
  }

  stopConsuming = () => this.worker.close();

  /** The file is synced once a second while a stock is filled. */
  relax = () => this.redis.config("SET", "appendfsync", "everysec");
  strict = () => this.redis.config("SET", "appendfsync", this.appendfsync);

  disk = () => diskBytes(this.dir, ["log"]);
  ram = () => ramBytes(this.pids());

  crash() {
    this.server.kill("SIGKILL");
    return new Promise((resolve) => this.server.on("exit", resolve));
  }

  async restart() {
    this.queue.close().catch(() => {});
    this.redis.disconnect();
    this.spawn();
    await this.connect();
  }

  async close() {
    this.server.kill("SIGKILL");
  }
}
