-- Reads the whole content of a shard at one moment, for a check of the structure.
--
-- KEYS: 1 records, 2 tokens of leases, 3 ends of leases, 4 labels, 5 parked, 6 dead, 7 counts, 8 directory of slices,
--       9 parked and dead timers by namespace, 10 places of namespaces, then the slices, then the sets of keys,
--       then the homes.
-- ARGV: 1 the time in a test deployment, 2 the number of slices and of sets of keys.
-- Answers {now, the content of each key in order}: sorted sets with their scores.
--
-- Changes nothing.

local answer = {now}
local sets = tonumber(ARGV[2])
for n = 1, #KEYS do
  if n == 2 or n == 7 or n > 10 + sets then
    answer[n + 1] = redis.call('HGETALL', KEYS[n])
  else
    answer[n + 1] = redis.call('ZRANGE', KEYS[n], 0, -1, 'WITHSCORES')
  end
end
return answer
