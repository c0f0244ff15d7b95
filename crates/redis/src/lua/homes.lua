-- Reads notes of timers that are in another shard than their ids say, of one shard.
--
-- KEYS: the hashes of notes, from the first one that is to be read on.
-- ARGV: 1 the time in a test deployment, 2 the number of notes after which no further hash is read.
-- Answers {now, the number of hashes that were read, notes}: notes is a list of id and note.
--
-- Changes nothing.

local most, read, notes = 2 * tonumber(ARGV[2]), 0, {}
while read < #KEYS and #notes < most do
  read = read + 1
  local its = redis.call('HGETALL', KEYS[read])
  for n = 1, #its do notes[#notes + 1] = its[n] end
end
return {now, read, notes}
