-- Stores a sign of life of a node. Answers all nodes, and forgets nodes that have been silent for an hour.
--
-- KEYS: 1 the deployment, 2 the nodes by the moments of their last signs, 3 the registration records of the nodes.
-- ARGV: 1 the time in a test deployment, 2 the deployment's id, 3 the node, 4 its registration record, 5 the channel of
--       hints, 6 the moment of the latest sign of any node that this node knows of, or 0, 7 the greatest
--       time by which the data may be older than that moment.
-- Answers {now, nodes, records, latest}: nodes is a list of node and moment, and records is a list of node and record;
--       latest is the moment of the latest sign of any node before this sign, or 0.
--
-- The latest sign never goes back by itself, even if the clock does. If it is older than a node knows, the server has
-- older data than the node has seen. A deployment whose key was made again has no latest sign, so nothing is known
-- about the age of its data.
--
-- A second run gives a second sign of the same node.

local id = redis.call('HGET', KEYS[1], 'id')
if not id then return redis.error_reply('GONE the key of the deployment itself is lost') end
if id ~= ARGV[2] then
  return redis.error_reply('OTHER the deployment was created anew: its server has lost it')
end
local known = tonumber(ARGV[6])
local latest = tonumber(redis.call('HGET', KEYS[1], 'latest')) or known
local back = known - latest
if back > tonumber(ARGV[7]) then
  return redis.error_reply('BACK ' .. string.format('%.0f', back))
end
if now > latest then redis.call('HSET', KEYS[1], 'latest', string.format('%.0f', now)) end
local silent = redis.call('ZRANGE', KEYS[2], '-inf', now - 3600000, 'BYSCORE', 'LIMIT', 0, 100)
if #silent > 0 then
  redis.call('ZREM', KEYS[2], unpack(silent))
  redis.call('HDEL', KEYS[3], unpack(silent))
end
if redis.call('ZADD', KEYS[2], string.format('%.0f', now), ARGV[3]) == 1 then
  redis.call('HSET', KEYS[3], ARGV[3], ARGV[4])
  redis.call('PUBLISH', ARGV[5], 'nodes')
end
return {now, redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES'), redis.call('HGETALL', KEYS[3]), string.format('%.0f', latest)}
