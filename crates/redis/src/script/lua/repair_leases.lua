-- Gives leases that have a token but no end an end again, so that their timers come back.
--
-- KEYS: 1 records, 2 tokens of leases, 3 ends of leases.
-- ARGV: 1 the time in a test deployment, 2 the length of a lease, 3 the place at which to read, 0 at first, 4 about how
--       many tokens to read.
-- Answers {now, the place at which to go on, or 0 behind the last token, number of tokens that were given an end}.
--
-- A second run finds an end of each token.

local page = redis.call('HSCAN', KEYS[2], ARGV[3], 'COUNT', ARGV[4])
local ids, mended = {}, 0
for n = 1, #page[2], 2 do ids[#ids + 1] = page[2][n] end
for from = 1, #ids, 1000 do
  local last = math.min(from + 999, #ids)
  local ends = redis.call('ZMSCORE', KEYS[3], unpack(ids, from, last))
  for n = from, last do
    if not ends[n - from + 1] then
      -- A token without a timer is a fault, which the check names.
      local record = redis.call('ZRANGEBYLEX', KEYS[1], '[' .. ids[n], '+', 'LIMIT', 0, 1)[1]
      if record and string.sub(record, 1, 16) == ids[n] then
        redis.call('ZADD', KEYS[3], string.format('%.0f', now + tonumber(ARGV[2])), ids[n])
        mended = mended + 1
      end
    end
  end
end
return {now, page[1], mended}
