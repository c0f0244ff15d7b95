-- Members of sorted sets without scores, in order, of any number of shards of one server.
--
-- KEYS: the sorted sets.
-- ARGV: 1 the time in a test deployment, 2 the first member, after ZRANGEBYLEX, 3 the beginning of all members, 4 the
--       greatest number for each set, 5 `back` for the order turned round.
-- Answers {now, members}: members has a list for each set.
--
-- Changes nothing.

local beginning, answer = ARGV[3], {}
local is_back = ARGV[5] == 'back'
local command, last = is_back and 'ZREVRANGEBYLEX' or 'ZRANGEBYLEX', is_back and '-' or '+'
for n = 1, #KEYS do
  local found, its = redis.call(command, KEYS[n], ARGV[2], last, 'LIMIT', 0, tonumber(ARGV[4])), {}
  for m = 1, #found do
    if string.sub(found[m], 1, #beginning) ~= beginning then break end
    its[m] = found[m]
  end
  answer[n] = its
end
return {now, answer}
