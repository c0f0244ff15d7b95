-- Finds a timer by its key, in the shard of the key.
--
-- KEYS: 1 records, 2 tokens of leases, 3 ends of leases, 4 the set of owners of keys that may have the key.
-- ARGV: 1 the time in a test deployment, 2 the beginning of the owner's entry, after which its id follows.
-- Answers {now, record, token, end of the lease}; each of the last three is nil if it does not exist.
--
-- A record that was put into quarantine leaves its entry in the set of keys. The script removes such an entry.
-- A second run finds nothing either.

local entry = redis.call('ZRANGEBYLEX', KEYS[4], '[' .. ARGV[2], '+', 'LIMIT', 0, 1)[1]
if not entry or string.sub(entry, 1, #ARGV[2]) ~= ARGV[2] then
  return {now, false, false, false}
end
local id = string.sub(entry, #ARGV[2] + 1)
local record = redis.call('ZRANGEBYLEX', KEYS[1], '[' .. id, '+', 'LIMIT', 0, 1)[1]
if not record or string.sub(record, 1, 16) ~= id then
  redis.call('ZREM', KEYS[4], entry)
  return {now, false, false, false}
end
return {now, record, redis.call('HGET', KEYS[2], id), redis.call('ZSCORE', KEYS[3], id)}
