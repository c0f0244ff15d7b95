-- Extends leases in one shard to a whole lease from now on.
--
-- KEYS: 1 tokens of leases, 2 ends of leases.
-- ARGV: 1 the time in a test deployment, 2 the length of a lease, then an id and its token for each lease.
-- Answers {now, lost leases}: their places among the leases, from 0 on.
--
-- A second run extends the same leases once more.

local ends = now + tonumber(ARGV[2])
local text = string.format('%.0f', ends)
local lost = {}
for n = 3, #ARGV, 2 do
  local held = redis.call('HGET', KEYS[1], ARGV[n])
  if held and string.sub(held, 1, 16) == ARGV[n + 1] then
    -- A lease that ends a day later than a whole lease was made while the clock was ahead. It is shortened.
    local is_ahead = (tonumber(redis.call('ZSCORE', KEYS[2], ARGV[n])) or 0) - ends > 86400000
    redis.call('ZADD', KEYS[2], is_ahead and 'XX' or 'GT', text, ARGV[n])
  else
    lost[#lost + 1] = (n - 3) / 2
  end
end
return {now, lost}
