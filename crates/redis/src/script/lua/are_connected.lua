-- Tells which nodes have their channels open. An open channel shows that the node is connected.
--
-- KEYS: 1 the deployment.
-- ARGV: 1 the time in a test deployment, then the channels of nodes.
-- Answers {now, numbers}: the number of connections that have subscribed to each channel.
--
-- Changes nothing.

local counts, answer = redis.call('PUBSUB', 'NUMSUB', unpack(ARGV, 2)), {}
for n = 2, #counts, 2 do answer[#answer + 1] = counts[n] end
return {now, answer}
