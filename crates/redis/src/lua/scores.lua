-- Members of sorted sets by score and member, of any number of shards of one server.
--
-- KEYS: the sorted sets.
-- ARGV: 1 the time in a test deployment, 2 the least score, 3 the greatest score, 4 the member after which to begin among
--       those with the least score, or nothing, 5 the greatest number for each set.
-- Answers {now, members}: members has a list for each set, of member and score.
--
-- Changes nothing.

local after, limit, answer = ARGV[4], tonumber(ARGV[5]), {}
-- Many members may have one score, and those before the first one that is wanted are passed over in great steps.
local chunk = after == '' and limit or math.max(limit, 1000)

local function is_after(one, other)
  for n = 1, #other do
    local a, b = string.byte(one, n), string.byte(other, n)
    if a ~= b then return a and a > b end
  end
  return #one > #other
end

for n = 1, #KEYS do
  local its, from = {}, 0
  while #its < 2 * limit do
    local found = redis.call('ZRANGE', KEYS[n], ARGV[2], ARGV[3], 'BYSCORE', 'LIMIT', from, chunk, 'WITHSCORES')
    local last = found[#found]
    local is_before = after ~= '' and last and tonumber(last) <= tonumber(ARGV[2]) and not is_after(found[#found - 1], after)
    for m = is_before and #found + 1 or 1, #found, 2 do
      local is_meant = after == '' or tonumber(found[m + 1]) > tonumber(ARGV[2]) or is_after(found[m], after)
      if is_meant and #its < 2 * limit then
        its[#its + 1] = found[m]
        its[#its + 1] = found[m + 1]
      end
    end
    from = from + chunk
    if #found < 2 * chunk then break end
  end
  answer[n] = its
end
return {now, answer}
