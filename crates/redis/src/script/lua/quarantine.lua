-- Puts a leased record that cannot be read into quarantine, so that it stops no claim and no end of leases.
--
-- KEYS: 1 records, 2 tokens of leases, 3 ends of leases, 4 counts, 5 records in quarantine,
--       6 redirects of timers that are not in the shards of their ids, 7 the set of keys that has the timer if it has
--       no key, 8 places of namespaces.
-- ARGV: 1 the time in a test deployment, 2 the record with its id, 3 the token, 4 the number of the set as two bytes.
-- Answers {now, whether the record was put into quarantine}.
--
-- A second run changes nothing.

local id, record = string.sub(ARGV[2], 1, 16), ARGV[2]
local held = redis.call('HGET', KEYS[2], id)
if not held or string.sub(held, 1, 16) ~= ARGV[3] or not redis.call('ZSCORE', KEYS[1], record) then
  return {now, 0}
end
redis.call('ZREM', KEYS[1], record)
redis.call('HDEL', KEYS[2], id)
redis.call('ZREM', KEYS[3], id)
redis.call('HSET', KEYS[5], id, record)
redis.call('HDEL', KEYS[6], id)
local namespace = string.sub(record, 23, 22 + (string.byte(record, 22) or 0))
-- The next reader of the timer's key removes its entry by key. An entry without a key has no such reader, so it is
-- removed here.
local beginning = string.char(#namespace) .. namespace
if redis.call('ZREM', KEYS[7], beginning .. '\255' .. id) == 1 then
  local other = redis.call('ZRANGEBYLEX', KEYS[7], '[' .. beginning, '+', 'LIMIT', 0, 1)[1]
  if not other or string.sub(other, 1, #beginning) ~= beginning then redis.call('ZREM', KEYS[8], beginning .. ARGV[4]) end
end
if redis.call('HINCRBY', KEYS[4], namespace .. '\1', -1) == 0 then
  redis.call('HDEL', KEYS[4], namespace .. '\1')
end
return {now, 1}
