-- Counts the members of sorted sets between some scores, for any number of shards of one server.
--
-- KEYS: the sorted sets.
-- ARGV: 1 the time in a test deployment, then scores that rise.
-- Answers {now, numbers}: numbers has a list for each set: the number of members up to the first score, above it up to
--       the second score, and so on, and last the number of members above all scores.
--
-- Changes nothing.

local answer = {}
for n = 1, #KEYS do
  local counts, from = {}, '-inf'
  for m = 2, #ARGV do
    counts[#counts + 1] = redis.call('ZCOUNT', KEYS[n], from, ARGV[m])
    from = '(' .. ARGV[m]
  end
  counts[#counts + 1] = redis.call('ZCOUNT', KEYS[n], from, '+inf')
  answer[n] = counts
end
return {now, answer}
