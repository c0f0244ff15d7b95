-- Replaces a shared document, if it has the version that the caller has read.
--
-- KEYS: 1 the deployment, 2 the documents.
-- ARGV: 1 the time in a test deployment, 2 the deployment's id, 3 the name, 4 the expected version, 5 whether the document
--       exists afterwards: 1 or 0, 6 the value, 7 the new version.
-- Answers {now, 1 if this run has replaced it, and 0 otherwise, the version afterwards, 1 if the document exists
--       afterwards, and 0 otherwise}.
--
-- A document that was removed leaves the version of its removal. So an absent document has a version, too: 0 if there was
-- none of the name. The caller draws the new version at random, so no version comes twice: neither after a document was
-- removed and created again, nor after a failover has lost changes. Versions are text, since a number of Lua has 53 bits.
-- A second run finds the version of the first run, or of a later change, and changes nothing.

local id = redis.call('HGET', KEYS[1], 'id')
if not id then return redis.error_reply('GONE the key of the deployment itself is lost') end
if id ~= ARGV[2] then
  return redis.error_reply('OTHER the deployment was created anew: its server has lost it')
end
local version = redis.call('HGET', KEYS[2], 'version:' .. ARGV[3])
local found = version or redis.call('HGET', KEYS[2], 'removed:' .. ARGV[3]) or '0'
if found ~= ARGV[4] then return {now, 0, found, version and 1 or 0} end
if ARGV[5] == '1' then
  redis.call('HSET', KEYS[2], 'version:' .. ARGV[3], ARGV[7], 'value:' .. ARGV[3], ARGV[6])
  redis.call('HDEL', KEYS[2], 'removed:' .. ARGV[3])
else
  redis.call('HDEL', KEYS[2], 'version:' .. ARGV[3], 'value:' .. ARGV[3])
  redis.call('HSET', KEYS[2], 'removed:' .. ARGV[3], ARGV[7])
end
return {now, 1, ARGV[7], tonumber(ARGV[5])}
