// An order and its timeout of 30 days, with node-postgres: node orders.mjs URL
import pg from "pg";

const client = new pg.Client({ connectionString: process.argv[2] });

// Runs statements in one transaction.
async function transaction(statements) {
  await client.query("BEGIN");
  try {
    const answer = await statements();
    await client.query("COMMIT");
    return answer;
  } catch (error) {
    await client.query("ROLLBACK");
    throw error;
  }
}

// Stores an order and its timeout in one transaction.
const order = (number) =>
  transaction(async () => {
    await client.query("INSERT INTO orders VALUES ($1, 'open')", [number]);
    await client.query(
      "SELECT tourbillon.schedule('payment timeout', $1, delay => '30 days', key => $2)",
      [{ order: number }, `order ${number}`],
    );
  });

// Records the payment and cancels the timeout in one transaction.
const pay = (number) =>
  transaction(async () => {
    await client.query("UPDATE orders SET state = 'paid' WHERE number = $1", [number]);
    const { rows } = await client.query("SELECT tourbillon.cancel($1) AS found", [`order ${number}`]);
    return rows[0].found;
  });

await client.connect();
await order(37);
try {
  await client.query("SELECT tourbillon.schedule('payment timeout', key => 'order 37')");
} catch (error) {
  if (error.code !== "23505") throw error;
  console.log("order 37 has its timeout already");
}
console.log(`order 37: ${await pay(37)}`);
await client.end();
