-- Lists the leases whose end has come, for any number of shards of one server.
--
-- KEYS: 3 for each shard: 1 records, 2 tokens of leases, 3 ends of leases.
-- ARGV: 1 the time in a test deployment, 2 the greatest number for each shard.
-- Answers {now, leases}: leases has a list for each shard, of id, end, record, token. Record and token are empty if
--       there is none. After these leases follows the next lease, with its id and its end only. It has ended as well if
--       the list has the greatest number.
--
-- Changes nothing.

local answer, most = {}, tonumber(ARGV[2])
for shard = 1, #KEYS / 3 do
  local base, leases = 3 * (shard - 1), {}
  local over = redis.call('ZRANGE', KEYS[base + 3], 0, most, 'WITHSCORES')
  for n = 1, #over, 2 do
    local id, is_over = over[n], tonumber(over[n + 1]) <= now
    leases[#leases + 1] = id
    leases[#leases + 1] = over[n + 1]
    if not is_over or n > 2 * most then break end
    local record = redis.call('ZRANGEBYLEX', KEYS[base + 1], '[' .. id, '+', 'LIMIT', 0, 1)[1]
    if not record or string.sub(record, 1, 16) ~= id then record = '' end
    leases[#leases + 1] = record
    leases[#leases + 1] = redis.call('HGET', KEYS[base + 2], id) or ''
  end
  answer[shard] = leases
end
return {now, answer}
