-- Reads the marks of shards. A mark is the id of the deployment to which the shard belongs.
--
-- KEYS: the shards themselves.
-- ARGV: 1 the time in a test deployment.
-- Answers {now, marks}: nothing for a shard without a mark, such as a shard that its server has lost.
--
-- Changes nothing.

local marks = {}
for n = 1, #KEYS do marks[n] = redis.call('HGET', KEYS[n], 'id') or '' end
return {now, marks}
