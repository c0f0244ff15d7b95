-- Reads the records of timers in one shard.
--
-- KEYS: 1 records, 2 tokens of leases, 3 ends of leases.
-- ARGV: 1 the time in a test deployment, then the ids.
-- Answers {now, records}: records is a list of record, token, end of the lease for each id, empty where it does not
--       exist.
--
-- Changes nothing.

local answer = {}
for n = 2, #ARGV do
  local id = ARGV[n]
  local record = redis.call('ZRANGEBYLEX', KEYS[1], '[' .. id, '+', 'LIMIT', 0, 1)[1]
  if not record or string.sub(record, 1, 16) ~= id then record = '' end
  answer[#answer + 1] = record
  answer[#answer + 1] = redis.call('HGET', KEYS[2], id) or ''
  answer[#answer + 1] = redis.call('ZSCORE', KEYS[3], id) or ''
end
return {now, answer}
