-- Leases timers that are due, the longest due first, in any number of shards of one server.
--
-- KEYS: 7 for each shard: 1 directory of slices, 2 records, 3 tokens of leases, 4 ends of leases, 5 counts, 6 and 7 the
--       two slices that the caller takes for the first ones. The last one is the deployment, but in a cluster, where it is
--       on another server perhaps.
-- ARGV: 1 the time in a test deployment, 2 the token, 3 the length of a lease, 4 the greatest number of timers, 5 the
--       number of payload bytes from which on no further timer is taken, 6 the number that the caller has taken already,
--       then 2 for each shard: the hours of its two slices, and the deployment's id.
-- Answers {now, is more due, records with their shards, slices, first due}: records is a list of shard, record, shard,
--       record; slices are the hours of the first two slices of each shard, and first due is the due moment of the first
--       timer that is pending.
--
-- A slice that is due and not among KEYS is not looked at, and no timer that is due after its first one is taken: the
-- caller calls again with the slices of the answer. Run twice, the script leases the timers that follow; the caller
-- finds the first ones by their token.

local token, lease, limit, most, taken = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
if #KEYS % 7 == 1 and redis.call('HGET', KEYS[#KEYS], 'id') ~= ARGV[#ARGV] then
  return redis.error_reply('OTHER the deployment is gone, or was created anew: its server has lost it')
end
local shards = math.floor(#KEYS / 7)
local heads, runs, barrier = {}, {}, math.huge

for shard = 1, shards do
  local base = 7 * (shard - 1)
  local open = redis.call('ZRANGE', KEYS[base + 1], 0, 2, 'WITHSCORES')
  heads[shard] = open
  for n = 1, #open, 2 do
    local due = tonumber(open[n + 1])
    if due <= now then
      local slice
      if n < 5 and open[n] == ARGV[5 + 2 * shard] then
        slice = base + 6
      elseif n < 5 and open[n] == ARGV[6 + 2 * shard] then
        slice = base + 7
      end
      if slice then
        runs[#runs + 1] = {shard = shard, base = base, slice = slice, hour = open[n], from = 0, at = 1, has = {}, gone = {}}
      elseif due < barrier then
        barrier = due
      end
    end
  end
end

local chunk = limit
if #runs > 1 and chunk > 16 then chunk = math.max(16, math.floor(2 * limit / #runs)) end

-- Brings the first due moment and the first id of a run up, or nil.
local function look(run)
  if run.at > #run.has and not run.is_read then
    run.has = redis.call('ZRANGE', KEYS[run.slice], '-inf', now, 'BYSCORE', 'LIMIT', run.from, chunk, 'WITHSCORES')
    run.from, run.at, run.is_read = run.from + chunk, 1, #run.has < 2 * chunk
  end
  run.id, run.due = run.has[run.at], tonumber(run.has[run.at + 1])
end

-- Whether one id is before another, byte by byte: the order of texts in Lua depends on the locale.
local function is_before(one, other)
  for n = 1, 16 do
    local a, b = string.byte(one, n), string.byte(other, n)
    if a ~= b then return a < b end
  end
  return false
end

local answer, leased, counted = {}, {}, {}
local number = 0
if limit > 0 then
  for n = 1, #runs do look(runs[n]) end
  while number < limit and not (taken > 0 and taken >= most) do
    local first
    for n = 1, #runs do
      local run = runs[n]
      if run.id and (not first or run.due < first.due or (run.due == first.due and is_before(run.id, first.id))) then
        first = run
      end
    end
    if not first or first.due >= barrier then break end
    local id, base = first.id, first.base
    first.gone[#first.gone + 1] = id
    local record = redis.call('ZRANGEBYLEX', KEYS[base + 2], '[' .. id, '+', 'LIMIT', 0, 1)[1]
    -- A record that is too short for its head is damage, which the check names.
    if record and #record >= 22 and string.sub(record, 1, 16) == id then
      number = number + 1
      local a, b, c, d = string.byte(record, 17, 20)
      taken = taken + ((a * 256 + b) * 256 + c) * 256 + d
      answer[#answer + 1] = first.shard
      answer[#answer + 1] = record
      leased[base] = leased[base] or {}
      local its = leased[base]
      its[#its + 1] = id
      local namespace = string.sub(record, 23, 22 + string.byte(record, 22))
      counted[base] = counted[base] or {}
      counted[base][namespace] = (counted[base][namespace] or 0) + 1
    end
    first.at = first.at + 2
    look(first)
  end
end

for n = 1, #runs do
  local run = runs[n]
  if #run.gone > 0 then
    for from = 1, #run.gone, 1000 do
      redis.call('ZREM', KEYS[run.slice], unpack(run.gone, from, math.min(from + 999, #run.gone)))
    end
    local head = redis.call('ZRANGE', KEYS[run.slice], 0, 0, 'WITHSCORES')
    if head[2] then
      redis.call('ZADD', KEYS[run.base + 1], head[2], run.hour)
    else
      redis.call('ZREM', KEYS[run.base + 1], run.hour)
    end
    heads[run.shard] = false
  end
end
local ends = string.format('%.0f', now + lease)
for base, ids in pairs(leased) do
  for from = 1, #ids, 1000 do
    local scores, fields = {}, {}
    for n = from, math.min(from + 999, #ids) do
      scores[#scores + 1], fields[#fields + 1] = ends, ids[n]
      scores[#scores + 1], fields[#fields + 1] = ids[n], token .. '\0'
    end
    redis.call('ZADD', KEYS[base + 4], unpack(scores))
    redis.call('HSET', KEYS[base + 3], unpack(fields))
  end
  for namespace, change in pairs(counted[base]) do
    redis.call('HINCRBY', KEYS[base + 5], namespace .. '\1', change)
    if redis.call('HINCRBY', KEYS[base + 5], namespace .. '\0', -change) == 0 then
      redis.call('HDEL', KEYS[base + 5], namespace .. '\0')
    end
  end
end

local slices, first_due = {}, math.huge
for shard = 1, shards do
  local open = heads[shard] or redis.call('ZRANGE', KEYS[7 * shard - 6], 0, 1, 'WITHSCORES')
  slices[#slices + 1] = open[1] or ''
  slices[#slices + 1] = open[3] or ''
  if open[2] then first_due = math.min(first_due, tonumber(open[2])) end
end
local is_more = first_due <= now and 1 or 0
return {now, is_more, answer, slices, first_due == math.huge and '' or string.format('%.0f', first_due)}
