-- Adds up some counts over shards of one server.
--
-- KEYS: the counts.
-- ARGV: 1 the time in a test deployment, then the fields.
-- Answers {now, sums}: sums has a number for each field.
--
-- Changes nothing.

local sums = {}
for n = 2, #ARGV do sums[n - 1] = 0 end
for n = 1, #KEYS do
  local found = redis.call('HMGET', KEYS[n], unpack(ARGV, 2))
  for m = 1, #found do sums[m] = sums[m] + tonumber(found[m] or 0) end
end
return {now, sums}
