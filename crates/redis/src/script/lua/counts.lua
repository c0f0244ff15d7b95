-- Reads the numbers of timers, for any number of shards of one server.
--
-- KEYS: 2 for each shard: 1 counts, 2 records that were set aside.
-- ARGV: 1 the time in a test deployment.
-- Answers {now, counts, records}: counts is a list of namespace with phase, and number; records is the number of those
--       that were set aside.
--
-- Changes nothing.

local answer, aside = {}, 0
for shard = 1, #KEYS / 2 do
  local of_shard = redis.call('HGETALL', KEYS[2 * shard - 1])
  for n = 1, #of_shard do answer[#answer + 1] = of_shard[n] end
  aside = aside + redis.call('HLEN', KEYS[2 * shard])
end
return {now, answer, aside}
