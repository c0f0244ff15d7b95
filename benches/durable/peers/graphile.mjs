// graphile-worker on a PostgreSQL of its own.

import { execFileSync } from "node:child_process";
import fs from "node:fs";
import { makeWorkerUtils, run, Logger } from "graphile-worker";
import pg from "pg";
import { diskBytes, family, freePort, now, ramBytes, serve, sleep } from "./tools.mjs";

const BIN = process.env.POSTGRES_BIN ?? "/usr/lib/postgresql/15/bin";
const logger = new Logger(() => () => {});

/** PostgreSQL refuses to run as root. */
const asUser = (program, args) =>
  process.getuid() === 0 ? ["setpriv", ["--reuid=postgres", "--regid=postgres", "--clear-groups", program, ...args]] : [program, args];

export class Peer {
  constructor(dir, { pollInterval }) {
    Object.assign(this, { dir, data: `${dir}/data`, pollInterval });
  }

  async start() {
    this.port ??= await freePort();
    if (process.getuid() === 0) execFileSync("chown", ["postgres", this.dir]);
    const init = asUser(`${BIN}/initdb`, ["-D", this.data, "-U", "postgres", "-A", "trust"]);
    execFileSync(...init, { stdio: ["ignore", "ignore", "inherit"], cwd: "/" });
    this.spawn();
    await this.connect();
    await this.utils.migrate();
  }

  spawn() {
    const args = ["-D", this.data, "-p", String(this.port), "-k", this.dir, "-c", "listen_addresses=127.0.0.1"];
    this.server = serve(...asUser(`${BIN}/postgres`, args), `${this.dir}/log`);
  }

  async connect() {
    const connectionString = `postgres://postgres@127.0.0.1:${this.port}/postgres`;
    for (const begin = now(); ; await sleep(5)) {
      const client = new pg.Client({ connectionString });
      client.on("error", () => {});
      try {
        await client.connect();
        await client.end();
        break;
      } catch (error) {
        if (now() - begin > 60_000) throw error;
      }
    }
    this.pool = new pg.Pool({ connectionString, max: 64 });
    this.pool.on("error", () => {});
    this.pool.on("connect", (client) => client.on("error", () => {}));
    this.utils = await makeWorkerUtils({ pgPool: this.pool, logger });
  }

  pids = () => family(this.server.pid);

  create = (key, payload, due) => this.utils.addJob("t", payload, { runAt: new Date(due), jobKey: key });

  createMany = (timers) =>
    this.utils.addJobs(
      timers.map(([jobKey, payload, due]) => ({ identifier: "t", payload, runAt: new Date(due), jobKey })),
    );

  async cancel(key) {
    const { rows } = await this.pool.query("select (graphile_worker.remove_job($1)).id", [key]);
    return rows[0].id !== null;
  }

  replace = (key, payload, due) => this.create(key, payload, due);

  async pending() {
    const { rows } = await this.pool.query("select count(*) from graphile_worker._private_jobs");
    return Number(rows[0].count);
  }

  async consume(onFire) {
    this.runner = await run({
      pgPool: this.pool,
      taskList: { t: async (payload) => onFire(payload) },
      noHandleSignals: true,
      logger,
      preset: {
        worker: {
          concurrentJobs: 24,
          pollInterval: this.pollInterval,
          localQueue: { size: 500 },
          completeJobBatchDelay: 0,
          failJobBatchDelay: 0,
        },
      },
    });
    this.runner.promise.catch(() => {});
  }

  stopConsuming = () => this.runner.stop();

  relax = () => this.setting("off");
  strict = () => this.setting("on");

  async setting(value) {
    await this.pool.query(`alter system set synchronous_commit = ${value}`);
    await this.pool.query("select pg_reload_conf()");
    await sleep(200);
  }

  /** The tables and indices after a checkpoint, without the log of changes. */
  async disk() {
    await this.pool.query("checkpoint");
    return diskBytes(this.data, ["pg_wal"]);
  }
  ram = () => ramBytes(this.pids());

  async crash() {
    const pids = this.pids();
    const exit = new Promise((resolve) => this.server.on("exit", resolve));
    for (const pid of pids) {
      try {
        process.kill(pid, "SIGKILL");
      } catch {
        // A backend that ends when its parent does.
      }
    }
    await exit;
    for (const pid of pids) while (fs.existsSync(`/proc/${pid}`)) await sleep(1);
  }

  async restart() {
    this.spawn();
    await this.connect();
  }

  async close() {
    await this.crash();
  }
}
