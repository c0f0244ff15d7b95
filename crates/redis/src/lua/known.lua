-- What is stored of a deployment, if there is one.
--
-- KEYS: 1 the deployment.
-- ARGV: 1 the time in a test deployment.
-- Answers {now, version, shards, id}; the last three are nil if there is no deployment.
--
-- Changes nothing.

return {
  now,
  redis.call('HGET', KEYS[1], 'version'),
  redis.call('HGET', KEYS[1], 'shards'),
  redis.call('HGET', KEYS[1], 'id'),
}
