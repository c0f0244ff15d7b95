-- Removes a redirect that leads to no timer any longer.
--
-- KEYS: 1 redirects of timers that are in another shard, in the shard of the id.
-- ARGV: 1 the time in a test deployment, 2 the id, 3 the redirect.
-- Answers {now, whether the redirect was removed}. Another redirect stays.
--
-- A second run finds nothing.

if redis.call('HGET', KEYS[1], ARGV[2]) ~= ARGV[3] then return {now, 0} end
return {now, redis.call('HDEL', KEYS[1], ARGV[2])}
