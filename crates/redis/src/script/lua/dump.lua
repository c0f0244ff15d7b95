-- Reads all timers of one shard at one moment.
--
-- KEYS: 1 records, 2 tokens of leases, 3 ends of leases.
-- ARGV: 1 the time in a test deployment.
-- Answers {now, records, tokens, ends}: lists of records, of id and token, and of id and end.
--
-- Changes nothing.

return {
  now,
  redis.call('ZRANGE', KEYS[1], 0, -1),
  redis.call('HGETALL', KEYS[2]),
  redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES'),
}
