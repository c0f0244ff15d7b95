-- Tells which of some timers are stored in a shard.
--
-- KEYS: 1 records.
-- ARGV: 1 the time in a test deployment, then the ids.
-- Answers {now, present}: present has 1 for each timer that is stored, and 0 for each timer that is not.
--
-- Changes nothing.

local present = {}
for n = 2, #ARGV do
  local record = redis.call('ZRANGEBYLEX', KEYS[1], '[' .. ARGV[n], '+', 'LIMIT', 0, 1)[1]
  present[n - 1] = record and string.sub(record, 1, 16) == ARGV[n] and 1 or 0
end
return {now, present}
