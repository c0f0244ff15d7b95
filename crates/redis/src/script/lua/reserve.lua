-- Writes a redirect in the shard of an id: a timer with this id will be stored in another shard. Writes nothing if the
-- id is taken.
--
-- KEYS: 1 records, 2 redirects of timers that are in another shard, 3 ids of ended timers, all in the shard of the id.
-- ARGV: 1 the time in a test deployment, 2 the id, 3 the redirect, 4 whether an id that is remembered is free.
-- Answers {now, 1} if the redirect is there. Otherwise answers {now, 0, reason, answer}: the reason is "stored",
--       "noted" with the other redirect, or "remembered" with the moment until which the id is.
--
-- A second run finds the redirect of the first, and answers the same.

local id, redirect = ARGV[2], ARGV[3]
local record = redis.call('ZRANGEBYLEX', KEYS[1], '[' .. id, '+', 'LIMIT', 0, 1)[1]
if record and string.sub(record, 1, 16) == id then return {now, 0, 'stored', ''} end
local noted = redis.call('HGET', KEYS[2], id)
if noted and noted ~= redirect then return {now, 0, 'noted', noted} end
local remembered = redis.call('ZSCORE', KEYS[3], id)
if remembered and tonumber(remembered) > now and ARGV[4] == '0' then return {now, 0, 'remembered', remembered} end
if not noted then redis.call('HSET', KEYS[2], id, redirect) end
return {now, 1}
