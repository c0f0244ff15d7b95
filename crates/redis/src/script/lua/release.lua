-- Gives up shards of a node, so that other nodes need not wait until its time is over.
--
-- KEYS: the shards themselves.
-- ARGV: 1 the time in a test deployment, 2 the node, 3 the channel of hints.
-- Answers {now, number of shards that were the node's}.
--
-- A second run finds no shard of the node.

local number = 0
for n = 1, #KEYS do
  if redis.call('HGET', KEYS[n], 'owner') == ARGV[2] then
    redis.call('HDEL', KEYS[n], 'owner', 'until', 'ttl')
    number = number + 1
  end
end
if number > 0 then redis.call('PUBLISH', ARGV[3], 'shards') end
return {now, number}
