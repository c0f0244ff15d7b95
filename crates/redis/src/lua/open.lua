-- Opens a deployment, and creates it if there is none.
--
-- KEYS: 1 the deployment.
-- ARGV: 1 the time in a test deployment, 2 the version of the layout, 3 the number of shards, 4 the clock: server or test,
--       5 an id for a deployment that is created, which tells it from one that was lost.
-- Answers {now, version, shards, clock, id}, as they are stored.
--
-- Run twice, the script finds the deployment at its second run.

if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'version', ARGV[2], 'shards', ARGV[3], 'clock', ARGV[4], 'id', ARGV[5])
end
return {
  now,
  redis.call('HGET', KEYS[1], 'version'),
  redis.call('HGET', KEYS[1], 'shards'),
  redis.call('HGET', KEYS[1], 'clock'),
  redis.call('HGET', KEYS[1], 'id'),
}
