-- Declares a node dead if its channel is closed, which shows that its process has lost its connection.
--
-- KEYS: 1 the deployment, 2 the nodes by the moments of their last signs.
-- ARGV: 1 the time in a test deployment, 2 the deployment's id, 3 the node, 4 its channel, 5 the channel of hints, 6
--       the time for which it counts as live after a sign.
-- Answers {now, 1 if the node was live and does not count as live any longer, 0 otherwise}.
--
-- The script makes the last sign of the node as old as that of a silent node. A second run finds the node silent.

local id = redis.call('HGET', KEYS[1], 'id')
if not id then return redis.error_reply('GONE the key of the deployment itself is lost') end
if id ~= ARGV[2] then
  return redis.error_reply('OTHER the deployment was created anew: its server has lost it')
end
local seen, silent = redis.call('ZSCORE', KEYS[2], ARGV[3]), now - tonumber(ARGV[6])
if not seen or tonumber(seen) <= silent or redis.call('PUBSUB', 'NUMSUB', ARGV[4])[2] > 0 then return {now, 0} end
redis.call('ZADD', KEYS[2], string.format('%.0f', silent), ARGV[3])
redis.call('PUBLISH', ARGV[5], 'nodes')
return {now, 1}
