-- Removes a note that leads to no timer any more, and a memory of an id that is stored again.
--
-- KEYS: 1 notes of timers that are in another shard, 2 ids of ended timers, both in the shard of the id.
-- ARGV: 1 the time in a test deployment, 2 the id, 3 the note or nothing, 4 the moment of the memory or nothing.
-- Answers {now, whether the note was removed}. Another note and another memory stay.
--
-- Run twice, the script finds nothing at its second run.

local removed = 0
if ARGV[3] ~= '' and redis.call('HGET', KEYS[1], ARGV[2]) == ARGV[3] then
  removed = redis.call('HDEL', KEYS[1], ARGV[2])
end
if ARGV[4] ~= '' and redis.call('ZSCORE', KEYS[2], ARGV[2]) == ARGV[4] then
  redis.call('ZREM', KEYS[2], ARGV[2])
end
return {now, removed}
