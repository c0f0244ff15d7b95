-- Answers the redirect of a timer that is about to end in another shard, and remembers its id.
--
-- KEYS: 1 redirects of timers that are in another shard, 2 ids of ended timers, both in the shard of the id.
-- ARGV: 1 the time in a test deployment, 2 the id, 3 the moment until which the id is remembered, or nothing.
-- Answers {now, redirect}; the redirect is nil if the shard has no redirect for the id.
--
-- A second run remembers the id until the later of the two moments.

if ARGV[3] ~= '' then
  local over = redis.call('ZRANGE', KEYS[2], '-inf', now, 'BYSCORE', 'LIMIT', 0, 100)
  if #over > 0 then redis.call('ZREM', KEYS[2], unpack(over)) end
  redis.call('ZADD', KEYS[2], 'GT', ARGV[3], ARGV[2])
end
return {now, redis.call('HGET', KEYS[1], ARGV[2])}
