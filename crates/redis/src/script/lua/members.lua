-- Lists members of sorted sets without scores, in order, for any number of shards of one server.
--
-- KEYS: the sorted sets.
-- ARGV: 1 the time in a test deployment, 2 the bound at which to begin, as ZRANGEBYLEX takes it, 3 the beginning of
--       all members, 4 the greatest number for each set, 5 `back` for the order turned round.
-- Answers {now, members}: members has a list for each set.
--
-- Changes nothing.

local beginning, limit, answer = ARGV[3], tonumber(ARGV[4]), {}

local function range(n)
  if ARGV[5] == 'back' then
    return redis.call('ZRANGE', KEYS[n], ARGV[2], '-', 'BYLEX', 'REV', 'LIMIT', 0, limit)
  end
  return redis.call('ZRANGEBYLEX', KEYS[n], ARGV[2], '+', 'LIMIT', 0, limit)
end

for n = 1, #KEYS do
  local found, members = range(n), {}
  for m = 1, #found do
    if string.sub(found[m], 1, #beginning) ~= beginning then break end
    members[m] = found[m]
  end
  answer[n] = members
end
return {now, answer}
