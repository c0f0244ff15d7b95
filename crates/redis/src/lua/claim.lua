-- Takes shards for a node, or keeps them, and leases timers of them that are due, the longest due first.
--
-- KEYS: 8 for each shard: 1 the shard itself, 2 directory of slices, 3 records, 4 tokens of leases, 5 ends of leases,
--       6 counts, 7 and 8 the two slices that the caller takes for the first ones.
-- ARGV: 1 the time in a test deployment, 2 the token, 3 the length of a lease, 4 the greatest number of timers, 5 the
--       number of payload bytes from which on no further timer is taken, 6 the number that the caller has taken already,
--       7 the deployment's id, 8 the node, 9 the time for which it takes a shard, 10 the greatest number of timers to be
--       named and not leased, 11 whether the end of the first lease is wanted: 1 or 0, then 2 for each shard: the periods
--       of its two slices.
-- Answers {now, is more due, records with their shards, slices, first dues, owned, first end, named, is cut}: records is a
--       list of shard, record, shard, record; slices are the periods of the first two slices of each shard; first dues has
--       the due moment of each shard's first pending timer, or nothing; owned has 1 for each shard that the node owns, 0 for
--       each that another node owns, and 2 for each that its server has lost; the last two are not looked at; first end is that of the first lease in the shards that
--       were taken by this call, and in all that the node owns if it is wanted, or nothing; named is a list of due moment,
--       id, number of payload bytes; is cut says whether more are due than are named.
--
-- A slice that is due and not among KEYS is not looked at, and no timer that is due after its first one is taken: the
-- caller calls again with the slices of the answer. A call that leases nothing writes nothing, unless a shard is taken or
-- a third of its time is over. Run twice, the script leases the timers that follow; the caller finds the first ones by
-- their token. The shards are the node's by then.

local token, lease, limit, most, taken = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local node, ttl, names = ARGV[8], tonumber(ARGV[9]), tonumber(ARGV[10])
local shards = #KEYS / 8
local owners = {}
for shard = 1, shards do
  owners[shard] = redis.call('HMGET', KEYS[8 * shard - 7], 'id', 'owner', 'until', 'ttl')
  local id = owners[shard][1]
  if id and id ~= ARGV[7] then
    return redis.error_reply('OTHER the deployment was created anew: its server has lost it')
  end
end

local owned, first_end = {}, nil
for shard = 1, shards do
  local owner = owners[shard][2]
  local rest = (tonumber(owners[shard][3]) or 0) - now
  -- More time than an owner takes is left only if the server's clock was set back.
  local is_held = owner and rest > 0 and rest <= (tonumber(owners[shard][4]) or 0)
  local ends = string.format('%.0f', now + ttl)
  local wants_end = ARGV[11] == '1'
  owned[shard] = 1
  if not owners[shard][1] then
    owned[shard], wants_end = 2, false
  elseif owner == node then
    if 3 * rest < 2 * ttl or rest > ttl then
      redis.call('HSET', KEYS[8 * shard - 7], 'until', ends, 'ttl', ttl)
    end
  elseif is_held then
    owned[shard], wants_end = 0, false
  else
    redis.call('HSET', KEYS[8 * shard - 7], 'owner', node, 'until', ends, 'ttl', ttl)
    redis.call('HINCRBY', KEYS[8 * shard - 7], 'epoch', 1)
    if owner then
      redis.call('HINCRBY', KEYS[8 * shard - 7], 'takeovers', 1)
      redis.call('HSET', KEYS[8 * shard - 7], 'taken', string.format('%.0f', now))
    end
    wants_end = true
  end
  if wants_end then
    local leased = redis.call('ZRANGE', KEYS[8 * shard - 3], 0, 0, 'WITHSCORES')
    if leased[2] then first_end = math.min(first_end or math.huge, tonumber(leased[2])) end
  end
end

local heads, runs, barrier = {}, {}, math.huge
for shard = 1, shards do
  local base = 8 * (shard - 1) + 1
  if owned[shard] == 1 then
    local open = redis.call('ZRANGE', KEYS[base + 1], 0, 2, 'WITHSCORES')
    heads[shard] = open
    for n = 1, #open, 2 do
      local due = tonumber(open[n + 1])
      if due <= now then
        local slice
        if n < 5 and open[n] == ARGV[10 + 2 * shard] then
          slice = base + 6
        elseif n < 5 and open[n] == ARGV[11 + 2 * shard] then
          slice = base + 7
        end
        if slice then
          runs[#runs + 1] = {shard = shard, base = base, slice = slice, period = open[n], from = 0, at = 1, has = {}, gone = {}, width = 4}
        elseif due < barrier then
          barrier = due
        end
      end
    end
  end
end

local wanted = math.max(limit, names)
local chunk = wanted
if #runs > 1 and chunk > 8 then chunk = math.max(8, math.floor(1.5 * wanted / #runs)) end

-- Brings the first due moment and the first id of a run up, or nil.
local function look(run)
  if run.at > #run.has and not run.is_read then
    run.has = redis.call('ZRANGE', KEYS[run.slice], '-inf', now, 'BYSCORE', 'LIMIT', run.from, chunk, 'WITHSCORES')
    run.from, run.at, run.is_read = run.from + chunk, 1, #run.has < 2 * chunk
  end
  run.id, run.due = run.has[run.at], tonumber(run.has[run.at + 1])
  -- The bytes of the id as three numbers: the order of texts in Lua depends on the locale.
  run.a, run.b, run.c = 0, 0, 0
  if run.id and #run.id == 16 then run.a, run.b, run.c = struct.unpack('>I6I5I5', run.id) end
end

local function is_before(one, other)
  if one.due ~= other.due then return one.due < other.due end
  if one.a ~= other.a then return one.a < other.a end
  if one.b ~= other.b then return one.b < other.b end
  return one.c < other.c
end

-- The runs that have a timer as a heap: the one whose timer is first is at its top.
local heap = {}

local function sink(place)
  local run, size = heap[place], #heap
  while 2 * place <= size do
    local child = 2 * place
    if child < size and is_before(heap[child + 1], heap[child]) then child = child + 1 end
    if not is_before(heap[child], run) then break end
    heap[place], place = heap[child], child
  end
  heap[place] = run
end

-- Goes from the timer of the first run to the next one.
local function pass()
  local run = heap[1]
  run.at = run.at + 2
  look(run)
  if not run.id then
    heap[1] = heap[#heap]
    heap[#heap] = nil
  end
  if heap[1] then sink(1) end
end

-- The record of the first timer of a run. Timers that are due at one moment are often neighbours among the records, too: so
-- several short records are read at once, as long as the ones before were of use.
local number, is_short = 0, false
local function record_of(run)
  local record = run.records and run.records[run.nth]
  if record and string.sub(record, 1, 16) == run.id then
    run.nth, run.width = run.nth + 1, 2 * run.width
    return record
  end
  if run.records and #run.records > 1 and run.nth == 2 then run.width = 1 end
  local width = is_short and math.min(run.width, 16, wanted - number, (#run.has - run.at + 1) / 2) or 1
  run.records = redis.call('ZRANGEBYLEX', KEYS[run.base + 2], '[' .. run.id, '+', 'LIMIT', 0, width)
  run.nth, record = 2, run.records[1]
  is_short = record and #record <= 1000
  return record
end

local answer, leased, counted, named = {}, {}, {}, {}
local is_cut = 0
if wanted > 0 then
  for n = 1, #runs do
    look(runs[n])
    if runs[n].id then heap[#heap + 1] = runs[n] end
  end
  for place = math.floor(#heap / 2), 1, -1 do sink(place) end
  while not (taken > 0 and taken >= most) do
    local first = heap[1]
    if not first then break end
    if number >= wanted or first.due >= barrier then
      is_cut = 1
      break
    end
    local id, base = first.id, first.base
    local record = record_of(first)
    -- A record that is too short for its head is damage, which the check names.
    local is_whole = record and #record >= 22 and string.sub(record, 1, 16) == id
    local length = 0
    if is_whole then
      local a, b, c, d = string.byte(record, 17, 20)
      length = ((a * 256 + b) * 256 + c) * 256 + d
    end
    if limit == 0 then
      number = number + 1
      named[#named + 1] = string.format('%.0f', first.due)
      named[#named + 1] = id
      named[#named + 1] = length
    else
      first.gone[#first.gone + 1] = id
      if is_whole then
        number = number + 1
        taken = taken + length
        answer[#answer + 1] = first.shard
        answer[#answer + 1] = record
        leased[base] = leased[base] or {}
        local its = leased[base]
        its[#its + 1] = id
        local namespace = string.sub(record, 23, 22 + string.byte(record, 22))
        counted[base] = counted[base] or {}
        counted[base][namespace] = (counted[base][namespace] or 0) + 1
      end
    end
    pass()
  end
  if barrier <= now then is_cut = 1 end
end

for n = 1, #runs do
  local run = runs[n]
  if #run.gone > 0 then
    for from = 1, #run.gone, 1000 do
      redis.call('ZREM', KEYS[run.slice], unpack(run.gone, from, math.min(from + 999, #run.gone)))
    end
    local head = redis.call('ZRANGE', KEYS[run.slice], 0, 0, 'WITHSCORES')
    if head[2] then
      redis.call('ZADD', KEYS[run.base + 1], head[2], run.period)
    else
      redis.call('ZREM', KEYS[run.base + 1], run.period)
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

local slices, dues, is_more = {}, {}, 0
for shard = 1, shards do
  local open = {}
  if owned[shard] == 1 then
    open = heads[shard] or redis.call('ZRANGE', KEYS[8 * shard - 6], 0, 1, 'WITHSCORES')
  end
  slices[#slices + 1] = open[1] or ''
  slices[#slices + 1] = open[3] or ''
  dues[shard] = open[2] or ''
  if open[2] and tonumber(open[2]) <= now then is_more = 1 end
end
return {now, is_more, answer, slices, dues, owned, first_end and string.format('%.0f', first_end) or '', named, is_cut}
