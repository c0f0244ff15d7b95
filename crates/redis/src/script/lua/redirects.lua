-- Reads redirects of one shard. A redirect leads to a timer that is not in the shard of its id.
--
-- KEYS: the hashes of redirects, from the first hash that is not read yet.
-- ARGV: 1 the time in a test deployment, 2 the number of redirects after which no further hash is read.
-- Answers {now, the number of hashes that were read, redirects}: redirects is a list of id and redirect.
--
-- Changes nothing.

local most, read, redirects = 2 * tonumber(ARGV[2]), 0, {}
while read < #KEYS and #redirects < most do
  read = read + 1
  local found = redis.call('HGETALL', KEYS[read])
  for n = 1, #found do redirects[#redirects + 1] = found[n] end
end
return {now, read, redirects}
