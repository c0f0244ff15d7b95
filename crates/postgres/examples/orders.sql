-- An order and its timeout of 30 days: psql -f orders.sql URL
--
-- The table: CREATE TABLE orders (number bigint PRIMARY KEY, state text NOT NULL)

-- The order and its timeout are stored in one transaction.
BEGIN;
INSERT INTO orders VALUES (17, 'open');
SELECT tourbillon.schedule('payment timeout', '{"order": 17}', delay => '30 days', key => 'order 17');
COMMIT;

-- A transaction that rolls back leaves no timer.
BEGIN;
INSERT INTO orders VALUES (18, 'open');
SELECT tourbillon.schedule('payment timeout', '{"order": 18}', delay => '30 days', key => 'order 18');
ROLLBACK;

-- The customer asks for a week more.
SELECT tourbillon.move_to('order 17', due => look.due + interval '7 days') FROM tourbillon.look('order 17');

-- The payment cancels the timeout in the transaction that records it.
BEGIN;
UPDATE orders SET state = 'paid' WHERE number = 17;
SELECT tourbillon.cancel('order 17');
COMMIT;
