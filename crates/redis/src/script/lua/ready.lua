-- Notes that all shards of a deployment are marked.
--
-- KEYS: 1 the deployment.
-- ARGV: 1 the time in a test deployment, 2 the deployment's id, 3 whether stores that had the lost deployment open go
--       on with the new deployment: 1 or nothing.
-- Answers {now}.
--
-- A second run writes the same again.

local id = redis.call('HGET', KEYS[1], 'id')
if not id then return redis.error_reply('GONE the key of the deployment itself is lost') end
if id ~= ARGV[2] then
  return redis.error_reply('OTHER the deployment was created anew: its server has lost it')
end
redis.call('HSET', KEYS[1], 'ready', 1)
if ARGV[3] == '1' then redis.call('HSET', KEYS[1], 'anew', 1) end
return {now}
