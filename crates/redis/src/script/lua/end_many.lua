-- Ends deliveries of timers that go for good. Removes each timer that is still as it was claimed.
--
-- KEYS: 3 for each shard: 1 records, 2 tokens of leases, 3 ends of leases; then the keys of the removals.
-- ARGV: 1 the time in a test deployment, 2 the number of shards, then for each shard: the number of its timers, their
--       ids, their records, their fields among the tokens; then the removals. The timers are numbered from 1 on,
--       through all shards. A removal names its key by the place in KEYS, and timers by their numbers.
--
--   removal   arguments                                                does, for each of the timers that was removed
--   r         key, number of timers, timers, a member for each         removes the member from a sorted set
--   k         key, number of timers, timers, a member for each,        removes the member from a set of keys; also removes the
--             places, set                                              namespace's place if the set has no other of it
--   d         key, number of timers, timers, a field for each          removes the field from a hash
--   c         key, field, number of timers, timers                     subtracts 1 from a number in a hash; 0 is removed
--
-- Answers {now, the numbers of the timers that were not as they were claimed, and stay}.
--
-- A second run finds no timer as it was claimed, and changes nothing.

local stays, answer = {}, {}

-- Returns the `count` arguments from `from` on, without the arguments of timers that stay. `timer(n)` is the number of
-- the timer to which the nth argument belongs, counted from 0.
local function of_removed(from, count, timer)
  local kept = {}
  for n = 0, count - 1 do
    if not stays[timer(n)] then kept[#kept + 1] = ARGV[from + n] end
  end
  return kept
end

local place, number = 3, 0
for base = 0, 3 * (tonumber(ARGV[2]) - 1), 3 do
  local count = tonumber(ARGV[place])
  local ids, records, marks = place + 1, place + 1 + count, place + 1 + 2 * count
  place = place + 1 + 3 * count
  local scores = redis.call('ZMSCORE', KEYS[base + 1], unpack(ARGV, records, records + count - 1))
  local tokens = redis.call('HMGET', KEYS[base + 2], unpack(ARGV, ids, ids + count - 1))
  for n = 1, count do
    if not scores[n] or tokens[n] ~= ARGV[marks + n - 1] then
      stays[number + n] = true
      answer[#answer + 1] = number + n
    end
  end
  local first = number + 1
  local function timer(n) return first + n end
  local removed = of_removed(ids, count, timer)
  if #removed > 0 then
    redis.call('ZREM', KEYS[base + 1], unpack(of_removed(records, count, timer)))
    redis.call('HDEL', KEYS[base + 2], unpack(removed))
    redis.call('ZREM', KEYS[base + 3], unpack(removed))
  end
  number = number + count
end

local last = #ARGV
while place <= last do
  local kind, key = ARGV[place], tonumber(ARGV[place + 1])
  if kind == 'r' or kind == 'd' or kind == 'k' then
    local count = tonumber(ARGV[place + 2])
    local timers, members = place + 3, place + 3 + count
    local kept = of_removed(members, count, function(n) return tonumber(ARGV[timers + n]) end)
    place = members + count
    if #kept > 0 then
      if kind == 'd' then redis.call('HDEL', KEYS[key], unpack(kept)) else redis.call('ZREM', KEYS[key], unpack(kept)) end
    end
    if kind == 'k' then
      local places, set = tonumber(ARGV[place]), ARGV[place + 1]
      place = place + 2
      for n = 1, #kept do
        local namespace = string.sub(kept[n], 1, 1 + string.byte(kept[n]))
        local other = redis.call('ZRANGEBYLEX', KEYS[key], '[' .. namespace, '+', 'LIMIT', 0, 1)[1]
        if not other or string.sub(other, 1, #namespace) ~= namespace then
          redis.call('ZREM', KEYS[places], namespace .. set)
        end
      end
    end
  elseif kind == 'c' then
    local count = tonumber(ARGV[place + 3])
    local timers = place + 4
    local kept = of_removed(timers, count, function(n) return tonumber(ARGV[timers + n]) end)
    if #kept > 0 and redis.call('HINCRBY', KEYS[key], ARGV[place + 2], -#kept) == 0 then
      redis.call('HDEL', KEYS[key], ARGV[place + 2])
    end
    place = timers + count
  else
    return redis.error_reply('TB no such removal: ' .. kind)
  end
end
return {now, answer}
