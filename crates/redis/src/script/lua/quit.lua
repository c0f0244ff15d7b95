-- Removes a node that ends.
--
-- KEYS: 1 the nodes by the moments of their last signs, 2 the registration records of the nodes.
-- ARGV: 1 the time in a test deployment, 2 the node, 3 the channel of hints.
-- Answers {now, whether the node was there}.
--
-- A second run finds nothing.

local was_there = redis.call('ZREM', KEYS[1], ARGV[2])
redis.call('HDEL', KEYS[2], ARGV[2])
if was_there == 1 then redis.call('PUBLISH', ARGV[3], 'nodes') end
return {now, was_there}
