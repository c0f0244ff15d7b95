-- Reads the key of a deployment.
--
-- KEYS: 1 the deployment.
-- ARGV: 1 the time in a test deployment.
-- Answers {now, version, shards, id, anew}. The last four are nil if the deployment does not exist. `anew` is 1 if the
-- deployment replaces a lost deployment of this name, for the stores that had the lost deployment open.
--
-- Changes nothing.

return {
  now,
  redis.call('HGET', KEYS[1], 'version'),
  redis.call('HGET', KEYS[1], 'shards'),
  redis.call('HGET', KEYS[1], 'id'),
  redis.call('HGET', KEYS[1], 'anew') or '',
}
