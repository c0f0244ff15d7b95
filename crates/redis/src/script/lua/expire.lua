-- Ends the time of a dead node's shards, so that others take them.
--
-- KEYS: the shards themselves.
-- ARGV: 1 the time in a test deployment, 2 the node, 3 the channel of hints.
-- Answers {now, number of shards that were the node's}.
--
-- A second run ends a time that is over already.

local number = 0
for n = 1, #KEYS do
  if redis.call('HGET', KEYS[n], 'owner') == ARGV[2] then
    redis.call('HSET', KEYS[n], 'until', string.format('%.0f', now))
    number = number + 1
  end
end
if number > 0 then redis.call('PUBLISH', ARGV[3], 'shards') end
return {now, number}
