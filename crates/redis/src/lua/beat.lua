-- A sign of life of a node. Answers all nodes, and forgets those that have been silent for an hour.
--
-- KEYS: 1 the deployment, 2 the nodes by the moments of their last signs, 3 what the nodes say of themselves.
-- ARGV: 1 the time in a test deployment, 2 the deployment's id, 3 the node, 4 what it says of itself, 5 the channel of hints.
-- Answers {now, nodes, texts}: nodes is a list of node and moment, and texts is a list of node and text.
--
-- Run twice, the script gives a second sign of the same life.

local id = redis.call('HGET', KEYS[1], 'id')
if not id then return redis.error_reply('GONE the key of the deployment itself is lost') end
if id ~= ARGV[2] then
  return redis.error_reply('OTHER the deployment was created anew: its server has lost it')
end
local silent = redis.call('ZRANGE', KEYS[2], '-inf', now - 3600000, 'BYSCORE', 'LIMIT', 0, 100)
if #silent > 0 then
  redis.call('ZREM', KEYS[2], unpack(silent))
  redis.call('HDEL', KEYS[3], unpack(silent))
end
if redis.call('ZADD', KEYS[2], string.format('%.0f', now), ARGV[3]) == 1 then
  redis.call('HSET', KEYS[3], ARGV[3], ARGV[4])
  redis.call('PUBLISH', ARGV[5], 'nodes')
end
return {now, redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES'), redis.call('HGETALL', KEYS[3])}
