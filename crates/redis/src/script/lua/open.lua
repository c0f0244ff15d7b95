-- Opens a deployment, and creates it if it does not exist.
--
-- KEYS: 1 the deployment.
-- ARGV: 1 the time in a test deployment, 2 the version of the layout, 3 the number of shards, 4 the clock: server or
--       test, 5 an id for a new deployment, which tells it from a lost deployment of the same name, 6 the channel of
--       hints, 7 whether stores that had the lost deployment open go on with the new deployment: 1 or nothing.
-- Answers {now, version, shards, clock, id, ready}, as they are stored; ready is nothing until all shards are marked.
--
-- A user that may not publish is refused here, before anything is stored. A second run finds the deployment.

redis.call('PUBLISH', ARGV[6], 'open')
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'version', ARGV[2], 'shards', ARGV[3], 'clock', ARGV[4], 'id', ARGV[5])
  if ARGV[7] == '1' then redis.call('HSET', KEYS[1], 'anew', 1) end
end
return {
  now,
  redis.call('HGET', KEYS[1], 'version'),
  redis.call('HGET', KEYS[1], 'shards'),
  redis.call('HGET', KEYS[1], 'clock'),
  redis.call('HGET', KEYS[1], 'id'),
  redis.call('HGET', KEYS[1], 'ready'),
}
