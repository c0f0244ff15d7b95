-- Extends leases in one shard to a whole lease from now on.
--
-- KEYS: 1 tokens of leases, 2 ends of leases.
-- ARGV: 1 the time in a test deployment, 2 the length of a lease, then an id and its token for each lease.
-- Answers {now, lost leases}: their places among the leases, from 0 on.
--
-- Run twice, the script extends the same leases once more.

local ends = string.format('%.0f', now + tonumber(ARGV[2]))
local lost = {}
for n = 3, #ARGV, 2 do
  local held = redis.call('HGET', KEYS[1], ARGV[n])
  if held and string.sub(held, 1, 16) == ARGV[n + 1] then
    redis.call('ZADD', KEYS[2], 'GT', ends, ARGV[n])
  else
    lost[#lost + 1] = (n - 3) / 2
  end
end
return {now, lost}
