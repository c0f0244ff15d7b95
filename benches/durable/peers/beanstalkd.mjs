// beanstalkd, with a small client of its protocol: a connection answers its commands in order.

import net from "node:net";
import { diskBytes, freePort, ramBytes, reachable, serve } from "./tools.mjs";

class Connection {
  constructor(port) {
    this.waiting = [];
    this.buffer = Buffer.alloc(0);
    this.socket = net.connect(port, "127.0.0.1");
    this.socket.setNoDelay(true);
    this.socket.on("data", (data) => this.read(data));
    this.socket.on("error", () => {});
    this.socket.on("close", () => this.waiting.splice(0).forEach(({ reject }) => reject(new Error("closed"))));
  }

  send(text) {
    return new Promise((resolve, reject) => {
      this.waiting.push({ resolve, reject });
      this.socket.write(text);
    });
  }

  read(data) {
    this.buffer = this.buffer.length === 0 ? data : Buffer.concat([this.buffer, data]);
    for (;;) {
      const end = this.buffer.indexOf("\r\n");
      if (end < 0) return;
      const words = this.buffer.toString("latin1", 0, end).split(" ");
      let used = end + 2;
      let body;
      if (words[0] === "RESERVED" || words[0] === "OK") {
        const length = Number(words[words.length - 1]);
        if (this.buffer.length < used + length + 2) return;
        body = this.buffer.toString("latin1", used, used + length);
        used += length + 2;
      }
      this.buffer = this.buffer.subarray(used);
      this.waiting.shift().resolve({ words, body });
    }
  }
}

export class Peer {
  constructor(dir, { sync }) {
    Object.assign(this, { dir, sync, consumers: [] });
  }

  async start() {
    this.port ??= await freePort();
    this.spawn(this.sync);
    await this.connect();
  }

  /** `sync` is the greatest time between two fsyncs in milliseconds; 0 for one at each write. */
  spawn(sync) {
    const args = ["-l", "127.0.0.1", "-p", this.port, "-b", this.dir, "-f", sync];
    this.server = serve("beanstalkd", args.map(String), `${this.dir}.log`);
  }

  async connect() {
    await reachable(this.port);
    this.connections = Array.from({ length: 64 }, () => new Connection(this.port));
    this.turn = 0;
  }

  pids = () => [this.server.pid];

  // A delay in whole seconds, rounded up: never early. The key goes with the payload.
  text(key, payload, due) {
    const body = key + JSON.stringify(payload);
    const delay = Math.max(0, Math.ceil((due - Date.now()) / 1000));
    return `put 0 ${delay} 60 ${body.length}\r\n${body}\r\n`;
  }

  async accepted(answer) {
    const { words } = await answer;
    if (words[0] !== "INSERTED") throw new Error(`put: ${words.join(" ")}`);
  }

  create(key, payload, due) {
    const connection = this.connections[this.turn++ % this.connections.length];
    return this.accepted(connection.send(this.text(key, payload, due)));
  }

  createMany(timers) {
    const [connection] = this.connections;
    return Promise.all(timers.map((timer) => this.accepted(connection.send(this.text(...timer)))));
  }

  async pending() {
    const { body } = await this.connections[0].send("stats\r\n");
    const count = (name) => Number(new RegExp(`^${name}: (\\d+)`, "m").exec(body)[1]);
    return count("current-jobs-delayed") + count("current-jobs-ready");
  }

  async consume(onFire) {
    this.consumers = Array.from({ length: 32 }, () => new Connection(this.port));
    for (const connection of this.consumers) this.serveOne(connection, onFire).catch(() => {});
  }

  async serveOne(connection, onFire) {
    for (;;) {
      const { words, body } = await connection.send("reserve\r\n");
      if (words[0] !== "RESERVED") continue;
      onFire(JSON.parse(body.slice(16)));
      await connection.send(`delete ${words[1]}\r\n`);
    }
  }

  async stopConsuming() {
    for (const connection of this.consumers) connection.socket.destroy();
  }

  /** The option is one of the start: a stock is filled with a server that syncs each 50 ms. */
  relax = () => this.again(50);
  strict = () => this.again(this.sync);

  async again(sync) {
    this.server.kill("SIGTERM");
    await new Promise((resolve) => this.server.on("exit", resolve));
    this.spawn(sync);
    await this.connect();
  }

  disk = () => diskBytes(this.dir);
  ram = () => ramBytes(this.pids());

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
