-- Finds a timer by its id, in the shard of the id.
--
-- KEYS: 1 records, 2 tokens of leases, 3 ends of leases, 4 redirects of timers that are in another shard.
-- ARGV: 1 the time in a test deployment, 2 the id.
-- Answers {now, record, token, end of the lease, redirect}; each of the last four is nil if it does not exist.
--
-- Changes nothing.

local id = ARGV[2]
local record = redis.call('ZRANGEBYLEX', KEYS[1], '[' .. id, '+', 'LIMIT', 0, 1)[1]
if not record or string.sub(record, 1, 16) ~= id then
  return {now, false, false, false, redis.call('HGET', KEYS[4], id)}
end
return {now, record, redis.call('HGET', KEYS[2], id), redis.call('ZSCORE', KEYS[3], id), false}
