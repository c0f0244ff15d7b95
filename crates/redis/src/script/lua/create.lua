-- Stores new timers. A timer is stored only if its id and its key are free and its id is not remembered.
--
-- KEYS: for each shard: 1 records, 2 ids of ended timers, 3 directory of slices, 4 counts, 5 places of namespaces, 6
--       the shard itself, then 3 for each of its timers: 7 redirects of timers that are in another shard, 8 the slice,
--       9 the set of keys that may have the key, or that has the entry of a timer without a key.
-- ARGV: 1 the time in a test deployment, 2 the deployment's id, then for each shard: the number of its timers, their
--       records, their due moments, the numbers of their slices, their fields among the counts, their entries in the
--       set without the id, after `k` for a key and after `n` for a timer without a key; and the places of their
--       namespaces.
-- Answers {now, the numbers of the timers that were not stored}: the timers are numbered from 1 on, through all shards.
--
-- No timer is stored in a shard without the deployment's id. No two of the timers have the same id or the same key.
-- A second run finds the timers of the first, and stores nothing.

local answer, place, key, number = {}, 3, 0, 0
local last = #ARGV
while place <= last do
  local count = tonumber(ARGV[place])
  local dues, slices, fields, entries = place + count, place + 2 * count, place + 3 * count, place + 4 * count
  local ids, records, heads, counts, places = {}, {}, {}, {}, {}
  for n = 1, count do ids[n] = string.sub(ARGV[place + n], 1, 16) end
  local is_marked = redis.call('HGET', KEYS[key + 6], 'id') == ARGV[2]
  local remembered = redis.call('ZMSCORE', KEYS[key + 2], unpack(ids))
  for n = 1, count do
    local id, entry, parts = ids[n], string.sub(ARGV[entries + n], 2), key + 3 * n + 3
    local is_keyed = string.byte(ARGV[entries + n]) == 107
    local record = redis.call('ZRANGEBYLEX', KEYS[key + 1], '[' .. id, '+', 'LIMIT', 0, 1)[1]
    local is_free = is_marked and not (record and string.sub(record, 1, 16) == id)
      and not (remembered[n] and tonumber(remembered[n]) > now)
      and not redis.call('HGET', KEYS[parts + 1], id)
    if is_free and is_keyed then
      local owner = redis.call('ZRANGEBYLEX', KEYS[parts + 3], '[' .. entry, '+', 'LIMIT', 0, 1)[1]
      is_free = not (owner and string.sub(owner, 1, #entry) == entry)
    end
    if is_free then
      local due, field, size = ARGV[dues + n], ARGV[fields + n], #records
      redis.call('ZADD', KEYS[parts + 2], due, id)
      redis.call('ZADD', KEYS[parts + 3], 0, entry .. id)
      records[size + 1], records[size + 2] = 0, ARGV[place + n]
      heads[size + 1], heads[size + 2] = due, ARGV[slices + n]
      places[size + 1], places[size + 2] = 0, ARGV[entries + count + n]
      counts[field] = (counts[field] or 0) + 1
    else
      answer[#answer + 1] = number + n
    end
  end
  if records[1] then
    redis.call('ZADD', KEYS[key + 1], unpack(records))
    redis.call('ZADD', KEYS[key + 3], 'LT', unpack(heads))
    for field, change in pairs(counts) do redis.call('HINCRBY', KEYS[key + 4], field, change) end
    redis.call('ZADD', KEYS[key + 5], unpack(places))
  end
  place, key, number = entries + 2 * count + 1, key + 6 + 3 * count, number + count
end
return {now, answer}
