// graphile-worker in PostgreSQL.

import { makeWorkerUtils, run, Logger } from "graphile-worker";
import { Postgres } from "./postgres.mjs";

const logger = new Logger(() => () => {});

export class Peer extends Postgres {
  constructor(dir, { pollInterval, ...place }) {
    super(dir, place);
    this.pollInterval = pollInterval;
  }

  async start() {
    await super.start();
    await this.utils.migrate();
  }

  async connect() {
    await super.connect();
    this.utils = await makeWorkerUtils({ pgPool: this.pool, logger });
  }

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

  pending = () => this.count("select count(*) from graphile_worker._private_jobs");

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
}
