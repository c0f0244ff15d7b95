-- Replaces a note, if it has the version that the caller has read.
--
-- KEYS: 1 the deployment, 2 the notes.
-- ARGV: 1 the time in a test deployment, 2 the deployment's id, 3 the name, 4 the version that the note is to have, 0 if
--       there is to be none, 5 whether the note is to be there afterwards: 1 or 0, 6 the value, 7 its version.
-- Answers {now, 1 if it was replaced, and 0 otherwise}.
--
-- The caller draws the new version at random, so no two notes have the same one: neither a note that was removed and made
-- again, nor one whose last changes a failover has lost. Versions are text, since a number of Lua has 53 bits.
-- Run twice, the script finds at its second run the version of the first one, and changes nothing.

local id = redis.call('HGET', KEYS[1], 'id')
if not id then return redis.error_reply('GONE the key of the deployment itself is lost') end
if id ~= ARGV[2] then
  return redis.error_reply('OTHER the deployment was created anew: its server has lost it')
end
if (redis.call('HGET', KEYS[2], 'version:' .. ARGV[3]) or '0') ~= ARGV[4] then return {now, 0} end
if ARGV[5] == '1' then
  redis.call('HSET', KEYS[2], 'version:' .. ARGV[3], ARGV[7], 'value:' .. ARGV[3], ARGV[6])
else
  redis.call('HDEL', KEYS[2], 'version:' .. ARGV[3], 'value:' .. ARGV[3])
end
return {now, 1}
