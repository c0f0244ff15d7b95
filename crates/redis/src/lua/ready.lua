-- Notes that all shards of a deployment are marked.
--
-- KEYS: 1 the deployment.
-- ARGV: 1 the time in a test deployment, 2 the deployment's id.
-- Answers {now}.
--
-- Run twice, the script writes the same note.

if redis.call('HGET', KEYS[1], 'id') ~= ARGV[2] then
  return redis.error_reply('OTHER the deployment is gone, or was created anew: its server has lost it')
end
redis.call('HSET', KEYS[1], 'ready', 1)
return {now}
