-- Makes the changes of one operation, if the data from which they follow have not changed.
--
-- KEYS: the keys of the checks and the changes, each key once. Checks and changes name a key by its place in KEYS.
-- ARGV: 1 the time in a test deployment, 2 the number of checks, the checks, the changes.
--
--   check      arguments              fails if
--   member     key, member            the sorted set does not have the member
--   free       key, beginning         a member of the sorted set has this beginning; answers that member
--   field      key, field, value      the field of the hash has another value, or none; answers the value
--   no-field   key, field             the hash has the field; answers its value
--   forgotten  key, id                the sorted set has the id with a later score than now; answers the score
--   over       key, id                the sorted set does not have the id with a score of now or before
--   before     key, moment            the moment has come; the key is not looked at
--
--   change     arguments              does
--   z          key, score, member     adds to a sorted set
--   r          key, member            removes from a sorted set
--   k          key, places, place, member   removes from a set of keys, and the place if the set has no other entry of the
--              namespace
--   s          key, field, value      sets a field of a hash
--   d          key, field             removes a field of a hash
--   c          key, field, number     adds to a number in a hash; a number of 0 is removed
--   q          directory, slice, number of the slice, due, id   adds a pending timer to a slice
--   p          directory, slice, number of the slice, id   removes a pending timer from a slice
--   e          key, id, until         remembers an id, and forgets up to 100 ids whose time is over
--   n          shard, directory, due, time, node, channel, message     publishes the message if all of this holds: the timer
--              is due within the time, so the owner may not look at the shard before; the timer is the first of its
--              shard, or the first timer is due already, so claims may pass over the timers before it; and the shard
--              has an owner other than the node
--   m          key, channel, message  publishes the message; the key is not looked at
--
-- Answers {now, 1}, or {now, 0, place of the check that failed, answer of the check}.
--
-- A second run finds the changes of the first: a check fails, and nothing changes.

local place = 3
for check = 1, tonumber(ARGV[2]) do
  local kind, key, expected = ARGV[place], tonumber(ARGV[place + 1]), ARGV[place + 2]
  place = place + 3
  local failed = false
  if kind == 'free' then
    local found = redis.call('ZRANGEBYLEX', KEYS[key], '[' .. expected, '+', 'LIMIT', 0, 1)[1]
    if found and string.sub(found, 1, #expected) == expected then failed = found end
  elseif kind == 'no-field' then
    failed = redis.call('HGET', KEYS[key], expected)
  elseif kind == 'forgotten' then
    local score = redis.call('ZSCORE', KEYS[key], expected)
    if score and tonumber(score) > now then failed = score end
  elseif kind == 'member' then
    if not redis.call('ZSCORE', KEYS[key], expected) then failed = '' end
  elseif kind == 'field' then
    local value = redis.call('HGET', KEYS[key], expected)
    if value ~= ARGV[place] then failed = value or '' end
    place = place + 1
  elseif kind == 'over' then
    local score = redis.call('ZSCORE', KEYS[key], expected)
    if not score or tonumber(score) > now then failed = score or '' end
  elseif kind == 'before' then
    if tonumber(expected) <= now then failed = '' end
  else
    return redis.error_reply('TB no such check: ' .. kind)
  end
  if failed then return {now, 0, check, failed} end
end

local last = #ARGV
while place <= last do
  local kind, key = ARGV[place], tonumber(ARGV[place + 1])
  if kind == 'z' then
    redis.call('ZADD', KEYS[key], ARGV[place + 2], ARGV[place + 3])
    place = place + 4
  elseif kind == 'q' then
    local slice = tonumber(ARGV[place + 2])
    redis.call('ZADD', KEYS[slice], ARGV[place + 4], ARGV[place + 5])
    redis.call('ZADD', KEYS[key], 'LT', ARGV[place + 4], ARGV[place + 3])
    place = place + 6
  elseif kind == 'c' then
    if redis.call('HINCRBY', KEYS[key], ARGV[place + 2], ARGV[place + 3]) == 0 then
      redis.call('HDEL', KEYS[key], ARGV[place + 2])
    end
    place = place + 4
  elseif kind == 'r' then
    redis.call('ZREM', KEYS[key], ARGV[place + 2])
    place = place + 3
  elseif kind == 'k' then
    local places, entry = tonumber(ARGV[place + 2]), ARGV[place + 3]
    redis.call('ZREM', KEYS[key], ARGV[place + 4])
    local namespace = string.sub(entry, 1, -3)
    local other = redis.call('ZRANGEBYLEX', KEYS[key], '[' .. namespace, '+', 'LIMIT', 0, 1)[1]
    if not other or string.sub(other, 1, #namespace) ~= namespace then redis.call('ZREM', KEYS[places], entry) end
    place = place + 5
  elseif kind == 's' then
    redis.call('HSET', KEYS[key], ARGV[place + 2], ARGV[place + 3])
    place = place + 4
  elseif kind == 'd' then
    redis.call('HDEL', KEYS[key], ARGV[place + 2])
    place = place + 3
  elseif kind == 'p' then
    local slice = tonumber(ARGV[place + 2])
    redis.call('ZREM', KEYS[slice], ARGV[place + 4])
    local head = redis.call('ZRANGE', KEYS[slice], 0, 0, 'WITHSCORES')
    if head[2] then
      redis.call('ZADD', KEYS[key], head[2], ARGV[place + 3])
    else
      redis.call('ZREM', KEYS[key], ARGV[place + 3])
    end
    place = place + 5
  elseif kind == 'e' then
    local over = redis.call('ZRANGE', KEYS[key], '-inf', now, 'BYSCORE', 'LIMIT', 0, 100)
    if #over > 0 then redis.call('ZREM', KEYS[key], unpack(over)) end
    redis.call('ZADD', KEYS[key], ARGV[place + 3], ARGV[place + 2])
    place = place + 4
  elseif kind == 'n' then
    local directory, due = tonumber(ARGV[place + 2]), tonumber(ARGV[place + 3])
    if due < now + tonumber(ARGV[place + 4]) then
      local head = redis.call('ZRANGE', KEYS[directory], 0, 0, 'WITHSCORES')
      if head[2] and (tonumber(head[2]) >= due or tonumber(head[2]) <= now) then
        local owner = redis.call('HGET', KEYS[key], 'owner')
        if owner and owner ~= ARGV[place + 5] then redis.call('PUBLISH', ARGV[place + 6], ARGV[place + 7]) end
      end
    end
    place = place + 8
  elseif kind == 'm' then
    redis.call('PUBLISH', ARGV[place + 2], ARGV[place + 3])
    place = place + 4
  else
    return redis.error_reply('TB no such change: ' .. kind)
  end
end
return {now, 1}
