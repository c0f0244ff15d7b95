-- What is stored of a deployment, if there is one.
--
-- KEYS: 1 the deployment.
-- ARGV: 1 the time in a test deployment.
-- Answers {now, version, shards, id, anew}; the last four are nil if there is no deployment, and the last one is 1 if it was
-- made in the place of one that was lost, for the stores that had that one open.
--
-- Changes nothing.

return {
  now,
  redis.call('HGET', KEYS[1], 'version'),
  redis.call('HGET', KEYS[1], 'shards'),
  redis.call('HGET', KEYS[1], 'id'),
  redis.call('HGET', KEYS[1], 'anew') or '',
}
