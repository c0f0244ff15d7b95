// The PostgreSQL of the peers that keep their jobs in one: a server of the peer's own, or a database on a server that the
// book has started.

import { execFileSync } from "node:child_process";
import fs from "node:fs";
import pg from "pg";
import { diskBytes, family, freePort, now, ramBytes, serve, sleep } from "./tools.mjs";

const BIN = process.env.POSTGRES_BIN ?? "/usr/lib/postgresql/15/bin";

/** PostgreSQL refuses to run as root. */
const asUser = (program, args) =>
  process.getuid() === 0 ? ["setpriv", ["--reuid=postgres", "--regid=postgres", "--clear-groups", program, ...args]] : [program, args];

/** The server, a pool of 64 connections to it, and what is measured of it. */
export class Postgres {
  /** `url` is the database on the book's server, and `server` the first process of that server. */
  constructor(dir, { url, server } = {}) {
    Object.assign(this, { dir, data: `${dir}/data`, url, shared: server });
  }

  async start() {
    if (this.url) return this.connect();
    this.port ??= await freePort();
    if (process.getuid() === 0) execFileSync("chown", ["postgres", this.dir]);
    const init = asUser(`${BIN}/initdb`, ["-D", this.data, "-U", "postgres", "-A", "trust"]);
    execFileSync(...init, { stdio: ["ignore", "ignore", "inherit"], cwd: "/" });
    this.spawn();
    await this.connect();
  }

  spawn() {
    const args = ["-D", this.data, "-p", String(this.port), "-k", this.dir, "-c", "listen_addresses=127.0.0.1"];
    this.server = serve(...asUser(`${BIN}/postgres`, args), `${this.dir}/log`);
  }

  async connect() {
    this.connectionString = this.url ?? `postgres://postgres@127.0.0.1:${this.port}/postgres`;
    for (const begin = now(); ; await sleep(5)) {
      const client = new pg.Client({ connectionString: this.connectionString });
      client.on("error", () => {});
      try {
        await client.connect();
        await client.end();
        break;
      } catch (error) {
        if (now() - begin > 60_000) throw error;
      }
    }
    this.pool = new pg.Pool({ connectionString: this.connectionString, max: 64 });
    this.pool.on("error", () => {});
    this.pool.on("connect", (client) => client.on("error", () => {}));
  }

  pids = () => family(this.shared ?? this.server.pid);

  async count(query) {
    const { rows } = await this.pool.query(query);
    return Number(rows[0].count);
  }

  relax = () => this.setting("off");
  strict = () => this.setting("on");

  async setting(value) {
    // The book's server keeps its settings.
    if (this.url) return;
    await this.pool.query(`alter system set synchronous_commit = ${value}`);
    await this.pool.query("select pg_reload_conf()");
    await sleep(200);
  }

  /** The tables and indices after a checkpoint, without the log of changes. */
  async disk() {
    if (this.url) return this.count("select pg_database_size(current_database()) as count");
    await this.pool.query("checkpoint");
    return diskBytes(this.data, ["pg_wal"]);
  }
  ram = () => ramBytes(this.pids());

  async crash() {
    if (this.url) {
      await this.ask({ kill_server: true });
      return;
    }
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
    if (this.url) this.shared = (await this.ask({ run_server: true })).pid;
    else this.spawn();
    await this.connect();
  }

  async close() {
    if (!this.url) await this.crash();
  }
}
