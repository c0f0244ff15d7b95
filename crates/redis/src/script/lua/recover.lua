-- Lists the timers that a claim has leased, for any number of shards of one server.
--
-- KEYS: 3 for each shard: 1 records, 2 tokens of leases, 3 ends of leases.
-- ARGV: 1 the time in a test deployment, 2 the token.
-- Answers {now, timers}: timers is a list of shard, record, token, end of the lease.
--
-- Changes nothing.

local answer = {}
for shard = 1, #KEYS / 3 do
  local base = 3 * (shard - 1)
  local held = redis.call('HGETALL', KEYS[base + 2])
  for n = 1, #held, 2 do
    if string.sub(held[n + 1], 1, 16) == ARGV[2] then
      local id = held[n]
      local record = redis.call('ZRANGEBYLEX', KEYS[base + 1], '[' .. id, '+', 'LIMIT', 0, 1)[1]
      if record and string.sub(record, 1, 16) == id then
        answer[#answer + 1] = shard
        answer[#answer + 1] = record
        answer[#answer + 1] = held[n + 1]
        answer[#answer + 1] = redis.call('ZSCORE', KEYS[base + 3], id) or ''
      end
    end
  end
end
return {now, answer}
