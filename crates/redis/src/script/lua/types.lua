-- Reads the types of a shard's keys, for a check that has met a key of a wrong type.
--
-- KEYS: the keys.
-- ARGV: 1 the time in a test deployment.
-- Answers {now, the type of each key in order}: `none` for a key that does not exist.
--
-- Changes nothing.

local answer = {now}
for n = 1, #KEYS do
  answer[n + 1] = redis.call('TYPE', KEYS[n]).ok
end
return answer
