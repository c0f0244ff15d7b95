// pg-boss in PostgreSQL.

import { PgBoss } from "pg-boss";
import { Postgres } from "./postgres.mjs";

/** The id of a job is a UUID that the caller may choose: a key of 16 bytes is one. */
const idOf = (key) => Buffer.from(key, "latin1").toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");

export class Peer extends Postgres {
  constructor(dir, { pollingIntervalSeconds, ...place }) {
    super(dir, place);
    this.pollingIntervalSeconds = pollingIntervalSeconds;
  }

  async start() {
    await super.start();
    await this.boss.createQueue("q");
  }

  async connect() {
    await super.connect();
    this.boss = new PgBoss({ connectionString: this.connectionString, max: 64 });
    this.boss.on("error", () => {});
    await this.boss.start();
  }

  async create(key, payload, due) {
    const id = await this.boss.send("q", payload, { id: idOf(key), startAfter: new Date(due) });
    if (id === null) throw new Error(`${key} is there already`);
  }

  createMany = (timers) =>
    this.boss.insert(
      "q",
      timers.map(([key, data, due]) => ({ id: idOf(key), data, startAfter: new Date(due) })),
    );

  cancel = async (key) => (await this.boss.deleteJob("q", idOf(key))).affected === 1;

  replace = (key, payload, due) => this.boss.upsert("q", payload, { id: idOf(key), startAfter: new Date(due) });

  pending = () => this.count("select count(*) from pgboss.job where name = 'q' and state < 'active'");

  async consume(onFire) {
    const { pollingIntervalSeconds } = this;
    const options = { pollingIntervalSeconds, batchSize: 500, burstWhenBatchFull: true };
    await this.boss.work("q", options, async (jobs) => jobs.forEach((job) => onFire(job.data)));
  }

  stopConsuming = () => this.boss.offWork("q");

  async restart() {
    // The client of the killed server would try again and again to reach it.
    this.boss.stop({ graceful: false }).catch(() => {});
    await super.restart();
  }
}
