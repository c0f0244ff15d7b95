-- Takes or keeps shards for a node, and leases due timers in them, the longest due first. In a *claim in turn*, no lane
-- gets more than its share, or more late timers than it may take. The script passes over the slices of a lane that may
-- take no further timer.
--
-- KEYS: for each shard: 1 the shard itself, 2 directory of slices, 3 records, 4 tokens of leases, 5 ends of leases,
--       6 counts, then the slices that come first in the directory, as far as the caller knows.
-- ARGV: 1 the time in a test deployment, 2 the token, 3 the length of a lease, 4 the greatest number of timers, 5 the
--       number of payload bytes from which on no further timer is taken, 6 the number of payload bytes that earlier
--       scripts of the same claim have taken, 7 the deployment's id, 8 the node, 9 the time for which it takes a shard,
--       10 the greatest number of timers to be named and not leased, 11 whether the end of the first lease is wanted: 1
--       or 0, 12 the number of lanes of the layout, 13 the timers that a claim in turn may still take, or nothing, 14
--       the time after which a timer is late, or nothing; for each lane that is not listed: 15 the late timers that it
--       may take, 16 the timers that it may take, or nothing; 17 the number of lanes that are listed, then 4 for each:
--       the lane's number, its deliveries under way (`argument` in shares.rs), the late timers that it may take, the
--       timers that it may take, or nothing; then for each shard the number of its slices, and their numbers.
-- Answers {now, records, slices, first dues, next dues, owned, first end, named, is cut}:
--       records is a list of shard, record, shard, record;
--       slices has a list of numbers for each shard: its first slices whose timers may be leased, and some slices that
--       are passed over;
--       first dues has the due moment of each shard's first pending timer, or nothing;
--       next dues has the due moment of each shard's first timer that may be leased, or nothing;
--       owned has 1 for each shard that the node owns, 0 for each shard that another node owns, and 2 for each shard
--       that its server has lost; the script leases nothing in the last two kinds;
--       first end is the end of the first lease in the shards that this call took, and in all shards of the node if it
--       is wanted, or nothing;
--       named is a list of due moment, id, number of payload bytes, lane;
--       is cut says whether more timers are due than are named.
--
-- The script looks only at slices that are among KEYS. If another slice is due, no timer that is due after the first
-- timer of that slice is taken: the caller calls again with the slices of the answer. A call that leases no timer
-- writes only if the node takes a shard, or if a third of the node's time for a shard is over. A second run leases the
-- next timers. The caller finds the timers of the first run by their token.

local token, lease, limit, most, taken = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local node, ttl, names = ARGV[8], tonumber(ARGV[9]), tonumber(ARGV[10])
local lanes, free, late_after, late_each = tonumber(ARGV[12]), tonumber(ARGV[13]), tonumber(ARGV[14]), tonumber(ARGV[15])
-- A slice is in the answer from this number of milliseconds before its first timer is due. The second number is the
-- greatest number of slices in the answer that are passed over.
local soon, most_passed = 60000, 4

local lane_of, given, place = {}, 0, 18
for _ = 1, tonumber(ARGV[17]) do
  local has, late, most = tonumber(ARGV[place + 1]), tonumber(ARGV[place + 2]), tonumber(ARGV[place + 3])
  lane_of[tonumber(ARGV[place])] = {has = has, late = late, most = most}
  place = place + 4
end

-- The first key of each shard, and the places of its slices among KEYS.
local bases, slices_of, shards, base = {}, {}, 0, 1
while place <= #ARGV do
  shards = shards + 1
  bases[shards], slices_of[shards] = base, {}
  local count = tonumber(ARGV[place])
  for n = 1, count do slices_of[shards][ARGV[place + n]] = base + 5 + n end
  base, place = base + 6 + count, place + 1 + count
end

local function lane_at(slice)
  local number = tonumber(slice) % lanes
  lane_of[number] = lane_of[number] or {has = 0, late = late_each, most = tonumber(ARGV[16])}
  return lane_of[number], number
end

local function is_late(due)
  return late_after and due < now - late_after
end

-- Returns whether a lane may take a timer with this due moment. A lane may have three deliveries for each free place.
local is_over = false
local function permits(lane, due)
  if lane.most and lane.most <= 0 and not is_over then return false end
  return not free or 3 * (free - given) > lane.has and (lane.late > 0 or not is_late(due))
end

local function give(lane, due)
  given, lane.has = given + 1, lane.has + 1
  if lane.most then lane.most = lane.most - 1 end
  if is_late(due) then lane.late = lane.late - 1 end
end

-- The greatest number of slices in the answer for a shard.
local most_slices = math.max(8, math.min(64, math.floor(512 / shards)))

-- Returns the beginning of a shard's directory:
-- `found`: the slices whose timers may be leased, as a list of number and first due moment;
-- `passed`: the numbers of slices that are passed over;
-- `first`: the first due moment of all slices;
-- `behind`: the first due moment of the next slice that may be leased and is not in `found`, if it is due.
-- Once a slice of a lane is passed over, all later due slices of the lane are, too: timers of a namespace keep their
-- order.
local function open(shard)
  local directory, found, passed, closed = bases[shard] + 1, {}, {}, {}
  local first, behind, is_full = nil, nil, false

  local function see(page)
    for n = 1, #page, 2 do
      local due = tonumber(page[n + 1])
      local lane, number = lane_at(page[n])
      if due > now or not closed[number] and permits(lane, due) then
        is_full = #found == 2 * most_slices or #found > 0 and due > now + soon
        if is_full then
          behind = due <= now and due or nil
          return
        end
        found[#found + 1], found[#found + 2] = page[n], page[n + 1]
      else
        closed[number] = true
        if #passed < most_passed then passed[#passed + 1] = page[n] end
      end
    end
  end

  local from, width, is_all = 0, 2, false
  for _ = 1, 8 do
    local page = redis.call('ZRANGE', KEYS[directory], from, from + width - 1, 'WITHSCORES')
    first = first or page[2]
    see(page)
    is_all = #page < 2 * width
    if is_full or is_all then break end
    from, width = from + width, math.min(4 * width, 128)
  end
  if not is_full and not is_all and #found == 0 then
    -- Hundreds of slices are passed over. The slices that came due last are likely to be of other lanes.
    local late = redis.call('ZRANGE', KEYS[directory], now, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 128, 'WITHSCORES')
    local page = {}
    for n = #late - 1, 1, -2 do page[#page + 1], page[#page + 2] = late[n], late[n + 1] end
    see(page)
    if not is_full then
      local after = string.format('(%.0f', now)
      see(redis.call('ZRANGE', KEYS[directory], after, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES'))
    end
  end
  return {found = found, passed = passed, first = first, behind = behind}
end

local owners = {}
for shard = 1, shards do
  local own = bases[shard]
  owners[shard] = redis.call('HMGET', KEYS[own], 'id', 'owner', 'until', 'ttl')
  local id = owners[shard][1]
  if id and id ~= ARGV[7] then
    return redis.error_reply('OTHER the deployment was created anew: its server has lost it')
  end
end

local owned, first_end = {}, nil
for shard = 1, shards do
  local own = bases[shard]
  local owner = owners[shard][2]
  local rest = (tonumber(owners[shard][3]) or 0) - now
  -- The time left is more than an owner takes only if the server's clock was set back.
  local is_held = owner and rest > 0 and rest <= (tonumber(owners[shard][4]) or 0)
  local ends = string.format('%.0f', now + ttl)
  local wants_end = ARGV[11] == '1'
  owned[shard] = 1
  if not owners[shard][1] then
    owned[shard], wants_end = 2, false
  elseif owner == node then
    if 3 * rest < 2 * ttl or rest > ttl then
      redis.call('HSET', KEYS[own], 'until', ends, 'ttl', ttl)
    end
  elseif is_held then
    owned[shard], wants_end = 0, false
  else
    redis.call('HSET', KEYS[own], 'owner', node, 'until', ends, 'ttl', ttl)
    redis.call('HINCRBY', KEYS[own], 'epoch', 1)
    if owner then
      redis.call('HINCRBY', KEYS[own], 'takeovers', 1)
      redis.call('HSET', KEYS[own], 'taken', string.format('%.0f', now))
    end
    wants_end = true
  end
  if wants_end then
    local leased = redis.call('ZRANGE', KEYS[own + 4], 0, 0, 'WITHSCORES')
    if leased[2] then first_end = math.min(first_end or math.huge, tonumber(leased[2])) end
  end
end

local heads, runs, barrier = {}, {}, math.huge
for shard = 1, shards do
  heads[shard] = {found = {}, passed = {}}
  if owned[shard] == 1 then
    local head = open(shard)
    heads[shard] = head
    if head.behind then barrier = math.min(barrier, head.behind) end
    for n = 1, #head.found, 2 do
      local number, due = head.found[n], tonumber(head.found[n + 1])
      local slice = slices_of[shard][number]
      if due <= now and slice then
        local lane, lane_number = lane_at(number)
        runs[#runs + 1] = {
          shard = shard, base = bases[shard], slice = slice, number = number, lane = lane, lane_number = lane_number,
          from = 0, at = 1, has = {}, gone = {}, width = 4
        }
      elseif due <= now then
        barrier = math.min(barrier, due)
      end
    end
  end
end

local wanted = math.max(limit, names)
local chunk = wanted
if #runs > 1 and chunk > 8 then chunk = math.max(8, math.floor(1.5 * wanted / #runs)) end

-- Reads the due moment and the id of the first timer of a run. They are nil if the run has no more timers.
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

-- A heap of the runs that have a timer. The run with the first timer is at the top.
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

-- Removes the first run from the heap.
local function drop()
  heap[1] = heap[#heap]
  heap[#heap] = nil
  if heap[1] then sink(1) end
end

-- Moves the first run to its next timer.
local function pass()
  local run = heap[1]
  run.at = run.at + 2
  look(run)
  if run.id then sink(1) else drop() end
end

-- Returns the record of the first timer of a run. Timers that are due at one moment are often neighbours among the
-- records as well. So several short records are read at once, if the records that were last read at once were used.
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
-- For each shard, the lanes of which some timer was passed over.
local closed = {}
for shard = 1, shards do closed[shard] = {} end
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
    -- Timers of the same moment may be in slices that were not looked at. The next script leases them.
    if number >= wanted or first.due > barrier then
      is_cut = 1
      break
    end
    if not closed[first.shard][first.lane_number] and permits(first.lane, first.due) then
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
        give(first.lane, first.due)
        named[#named + 1] = string.format('%.0f', first.due)
        named[#named + 1] = id
        named[#named + 1] = length
        named[#named + 1] = first.lane_number
      else
        first.gone[#first.gone + 1] = id
        if is_whole then
          number = number + 1
          taken = taken + length
          give(first.lane, first.due)
          answer[#answer + 1] = first.shard
          answer[#answer + 1] = record
          leased[base] = leased[base] or {}
          local of_shard = leased[base]
          of_shard[#of_shard + 1] = id
          local namespace = string.sub(record, 23, 22 + string.byte(record, 22))
          counted[base] = counted[base] or {}
          counted[base][namespace] = (counted[base][namespace] or 0) + 1
        end
      end
      pass()
    else
      closed[first.shard][first.lane_number] = true
      drop()
    end
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
      redis.call('ZADD', KEYS[run.base + 1], head[2], run.number)
    else
      redis.call('ZREM', KEYS[run.base + 1], run.number)
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

-- Leased timers leave fewer free places to all lanes, so the slices are chosen again. Timers that were only named take
-- no place. The number of timers that a lane may take (`most`) limits this call only, so it no longer counts here.
is_over = true
local is_given = free and given > 0 and limit > 0
local slices, dues, nexts = {}, {}, {}
for shard = 1, shards do
  if owned[shard] == 1 and (is_given or not heads[shard]) then heads[shard] = open(shard) end
  local head, of_shard = heads[shard], {}
  for n = 1, #head.found, 2 do of_shard[#of_shard + 1] = head.found[n] end
  for n = 1, #head.passed do of_shard[#of_shard + 1] = head.passed[n] end
  slices[shard], dues[shard], nexts[shard] = of_shard, head.first or '', head.found[2] or ''
end
local ended = first_end and string.format('%.0f', first_end) or ''
return {now, answer, slices, dues, nexts, owned, ended, named, is_cut}
