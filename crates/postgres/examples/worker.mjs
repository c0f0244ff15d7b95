// Closes orders whose timeouts are in a queue, each once, with node-postgres: node worker.mjs DATABASE SERVICE QUEUE
import pg from "pg";

const [database, service, queue] = process.argv.slice(2);
const client = new pg.Client({ connectionString: database });

// Sends a request to the service.
const post = (path, body) =>
  fetch(`${service}/v1/namespaces/default/${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });

// Closes an order and ends the delivery of its timeout in one transaction. Returns whether both were done.
async function close(claim) {
  const { order } = JSON.parse(claim.body);
  await client.query("BEGIN");
  try {
    await client.query("UPDATE orders SET state = 'closed' WHERE number = $1 AND state = 'open'", [order]);
    await client.query("SELECT tourbillon.done($1, $2)", [claim.id, claim.claim]);
    await client.query("COMMIT");
    return true;
  } catch (error) {
    await client.query("ROLLBACK");
    // The claim has expired, and another receiver may have the timer. The order is as it was.
    if (error.code === "TB001") return false;
    throw error;
  }
}

await client.connect();
// Waits up to 20 seconds for a due timer.
const answer = await post(`queues/${queue}/claims`, { max: 1, wait_ms: 20000 });
if (!answer.ok) throw new Error(await answer.text());
for (const claim of (await answer.json()).claims) {
  console.log(`${claim.key}: ${(await close(claim)) ? "closed" : "left to another receiver"}`);
  // The delivery has ended, so this answers 409. It frees the receiver's place in the queue.
  await post(`claims/${claim.claim}/ack`, {});
}
await client.end();
