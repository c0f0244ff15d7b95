-- Lists the reasons for which timers are parked, shard by shard, for any number of shards of one server.
--
-- KEYS: the sorted sets of parked timers.
-- ARGV: 1 the time in a test deployment, 2 the bound at which to begin in the first set, as ZRANGEBYLEX takes it, 3
--       the greatest number of reasons.
-- Answers {now, reasons, place, member}: reasons is a list of reason, number of timers and earliest due moment; place
--       and member say where the next call begins: the place among KEYS and its ARGV 2. The place is 0 at the end.
--
-- The work depends on the number of reasons, and not on the number of timers. Changes nothing.

local place, from, limit, answer = 1, ARGV[2], tonumber(ARGV[3]), {}
while place <= #KEYS and #answer < 3 * limit do
  local first = redis.call('ZRANGEBYLEX', KEYS[place], from, '+', 'LIMIT', 0, 1)[1]
  if first then
    -- A member is the length of the reason, the reason, a moment, whose first byte is never 255, and an id.
    local beginning = string.sub(first, 1, 1 + string.byte(first, 1))
    from = '[' .. beginning .. '\255'
    answer[#answer + 1] = string.sub(beginning, 2)
    answer[#answer + 1] = redis.call('ZLEXCOUNT', KEYS[place], '[' .. first, '(' .. beginning .. '\255')
    -- A damaged member may be too short. The zeros keep it from failing the call.
    answer[#answer + 1] = struct.unpack('>I6', string.sub(first, #beginning + 1) .. '\0\0\0\0\0\0')
  else
    place, from = place + 1, '-'
  end
end
if place > #KEYS then return {now, answer, 0, ''} end
return {now, answer, place, from}
