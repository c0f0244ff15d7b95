-- Lists the nodes of a deployment.
--
-- KEYS: 1 the nodes by the moments of their last signs, 2 the registration records of the nodes.
-- ARGV: 1 the time in a test deployment.
-- Answers {now, nodes, records}: nodes is a list of node and moment, and records is a list of node and record.
--
-- Changes nothing.

return {now, redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES'), redis.call('HGETALL', KEYS[2])}
