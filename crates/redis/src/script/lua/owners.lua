-- Reads the owners of shards, and the due moments of the shards' first timers.
--
-- KEYS: 2 for each shard: 1 the shard itself, 2 directory of slices.
-- ARGV: 1 the time in a test deployment.
-- Answers {now, shards}: shards is a list of 6 for each shard: owner, number of owners so far, number of takeovers,
--       moment of the last takeover, first due moment, mark. Each may be nothing. The owner is also nothing if its time
--       is over.
--
-- Changes nothing.

local answer = {}
for shard = 1, #KEYS / 2 do
  local meta = redis.call('HMGET', KEYS[2 * shard - 1], 'owner', 'until', 'ttl', 'epoch', 'takeovers', 'taken', 'id')
  local rest = (tonumber(meta[2]) or 0) - now
  local is_held = meta[1] and rest > 0 and rest <= (tonumber(meta[3]) or 0)
  local head = redis.call('ZRANGE', KEYS[2 * shard], 0, 0, 'WITHSCORES')
  answer[#answer + 1] = is_held and meta[1] or ''
  for n = 4, 6 do answer[#answer + 1] = meta[n] or '' end
  answer[#answer + 1] = head[2] or ''
  answer[#answer + 1] = meta[7] or ''
end
return {now, answer}
