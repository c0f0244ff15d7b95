-- Leases parked timers of some shards. Any nodes may own these shards.
--
-- KEYS: 1 a key with the deployment's id: the deployment itself, or a shard in a cluster; then 6 for each shard: 1
--       parked timers, 2 records, 3 tokens of leases, 4 ends of leases, 5 counts, 6 parked and dead timers by
--       namespace.
-- ARGV: 1 the time in a test deployment, 2 the token, 3 the length of a lease, 4 the number of payload bytes from which
--       on no further timer is taken, 5 the deployment's id, 6 the number of bytes before the due moment of an entry,
--       then for each shard: the number of its entries, the entries.
-- Answers {now, records with their shards}: a list of shard, record, shard, record.
--
-- Entries that are gone, and entries whose due moments have not come, are passed over. A second run finds the entries
-- gone. The caller finds the leased timers by their token.

local token, lease, most, before = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[6])
local id = redis.call('HGET', KEYS[1], 'id')
if not id then return redis.error_reply('GONE the mark of a shard, or the key of the deployment, is lost') end
if id ~= ARGV[5] then
  return redis.error_reply('OTHER the deployment was created anew: its server has lost it')
end

local ends = string.format('%.0f', now + lease)
local answer, taken, place = {}, 0, 7
for shard = 1, (#KEYS - 1) / 6 do
  local base, count = 6 * shard - 4, tonumber(ARGV[place])
  local scores = redis.call('ZMSCORE', KEYS[base], unpack(ARGV, place + 1, place + count))
  local entries, leases, tokens, stopped, changes = {}, {}, {}, {}, {}
  for n = 1, count do
    local entry = ARGV[place + n]
    local is_due = scores[n] and struct.unpack('>I6', string.sub(entry, before + 1, before + 6)) <= now
    if is_due and not (taken > 0 and taken >= most) then
      local id = string.sub(entry, -16)
      local record = redis.call('ZRANGEBYLEX', KEYS[base + 1], '[' .. id, '+', 'LIMIT', 0, 1)[1]
      -- A record that is too short for its head is damage, which the check names.
      if record and #record >= 22 and string.sub(record, 1, 16) == id then
        local a, b, c, d = string.byte(record, 17, 20)
        taken = taken + ((a * 256 + b) * 256 + c) * 256 + d
        answer[#answer + 1] = shard
        answer[#answer + 1] = record
        entries[#entries + 1] = entry
        leases[#leases + 1], leases[#leases + 2] = ends, id
        tokens[#tokens + 1], tokens[#tokens + 2] = id, token .. '\0'
        local namespace = string.sub(record, 23, 22 + string.byte(record, 22))
        stopped[#stopped + 1] = string.sub(record, 22, 22 + #namespace) .. '\2' .. entry
        changes[namespace] = (changes[namespace] or 0) + 1
      end
    end
  end
  if #entries > 0 then
    redis.call('ZREM', KEYS[base], unpack(entries))
    redis.call('ZREM', KEYS[base + 5], unpack(stopped))
    redis.call('ZADD', KEYS[base + 3], unpack(leases))
    redis.call('HSET', KEYS[base + 2], unpack(tokens))
    for namespace, change in pairs(changes) do
      redis.call('HINCRBY', KEYS[base + 4], namespace .. '\1', change)
      if redis.call('HINCRBY', KEYS[base + 4], namespace .. '\2', -change) == 0 then
        redis.call('HDEL', KEYS[base + 4], namespace .. '\2')
      end
    end
  end
  place = place + 1 + count
end
return {now, answer}
