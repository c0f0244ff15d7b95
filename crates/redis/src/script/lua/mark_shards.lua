-- Marks shards as those of a deployment, once, when the deployment is created.
--
-- KEYS: the shards themselves.
-- ARGV: 1 the time in a test deployment, 2 the deployment's id.
-- Answers {now}.
--
-- A second run finds the marks of the first.

for n = 1, #KEYS do
  local id = redis.call('HGET', KEYS[n], 'id')
  if id and id ~= ARGV[2] then
    return redis.error_reply('OTHER a shard is of a deployment of the same name whose own key is gone')
  end
end
for n = 1, #KEYS do redis.call('HSET', KEYS[n], 'id', ARGV[2]) end
return {now}
