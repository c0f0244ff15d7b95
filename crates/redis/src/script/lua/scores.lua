-- Lists members of sorted sets by score and member, for any number of shards of one server.
--
-- KEYS: the sorted sets.
-- ARGV: 1 the time in a test deployment, 2 the least score, 3 the greatest score, 4 the member after which to begin
--       among the members with the first score, or nothing, 5 the greatest number for each set, 6 `back` for the
--       order turned round: from the greatest score to the least.
-- Answers {now, members}: members has a list for each set, of member and score.
--
-- Changes nothing.

local after, limit, answer = ARGV[4], tonumber(ARGV[5]), {}

local is_back = ARGV[6] == 'back'
local first, last = is_back and ARGV[3] or ARGV[2], is_back and ARGV[2] or ARGV[3]

local function is_greater(one, other)
  for n = 1, #other do
    local a, b = string.byte(one, n), string.byte(other, n)
    if a ~= b then return a and a > b end
  end
  return #one > #other
end

local function is_meant(member, score)
  if after == '' or tonumber(score) ~= tonumber(first) then return true end
  if is_back then return is_greater(after, member) end
  return is_greater(member, after)
end

local function range(n, from, chunk)
  if is_back then
    return redis.call('ZRANGE', KEYS[n], first, last, 'BYSCORE', 'REV', 'LIMIT', from, chunk, 'WITHSCORES')
  end
  return redis.call('ZRANGE', KEYS[n], first, last, 'BYSCORE', 'LIMIT', from, chunk, 'WITHSCORES')
end

for n = 1, #KEYS do
  -- Many members may have the same score. The script passes over members before the first wanted member in ever greater
  -- steps.
  local members, from, chunk = {}, 0, limit + 1
  while #members < 2 * limit do
    local found = range(n, from, chunk)
    local is_before = #found > 0 and not is_meant(found[#found - 1], found[#found])
    for m = is_before and #found + 1 or 1, #found, 2 do
      if is_meant(found[m], found[m + 1]) and #members < 2 * limit then
        members[#members + 1] = found[m]
        members[#members + 1] = found[m + 1]
      end
    end
    if #found < 2 * chunk then break end
    from = from + chunk
    if is_before then chunk = math.min(4 * chunk, math.max(limit, 1000)) end
  end
  answer[n] = members
end
return {now, answer}
