-- Makes a redirect void: no timer is stored under it, and the creation that wrote it cannot store a timer any longer. If
-- the redirect is on the same server, removes it instead.
--
-- KEYS: 1 records, 2 ids of ended timers, both in the shard to which the redirect leads, 3 redirects of timers that are
--       in another shard, in the shard of the id, if ARGV has the redirect.
-- ARGV: 1 the time in a test deployment, 2 the id, 3 the mark of the creation, 4 for how long the mark is void, in
--       milliseconds, 5 the redirect, if it is on the same server.
-- Answers {now, 1}, or {now, 0} if the timer is stored.
--
-- A second run keeps the mark for longer, and finds no redirect.

local id = ARGV[2]
local record = redis.call('ZRANGEBYLEX', KEYS[1], '[' .. id, '+', 'LIMIT', 0, 1)[1]
if record and string.sub(record, 1, 16) == id then return {now, 0} end
if ARGV[5] then
  if redis.call('HGET', KEYS[3], id) == ARGV[5] then redis.call('HDEL', KEYS[3], id) end
  return {now, 1}
end
local over = redis.call('ZRANGE', KEYS[2], '-inf', now, 'BYSCORE', 'LIMIT', 0, 100)
if #over > 0 then redis.call('ZREM', KEYS[2], unpack(over)) end
redis.call('ZADD', KEYS[2], string.format('%.0f', now + tonumber(ARGV[4])), id .. ARGV[3])
return {now, 1}
