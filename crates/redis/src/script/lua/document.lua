-- Reads a shared document: a small value that the processes of a deployment share.
--
-- KEYS: 1 the deployment, 2 the documents.
-- ARGV: 1 the time in a test deployment, 2 the deployment's id, 3 the name.
-- Answers {now, version, value}: the version is empty if the document does not exist.
--
-- Changes nothing.

local id = redis.call('HGET', KEYS[1], 'id')
if not id then return redis.error_reply('GONE the key of the deployment itself is lost') end
if id ~= ARGV[2] then
  return redis.error_reply('OTHER the deployment was created anew: its server has lost it')
end
return {
  now,
  redis.call('HGET', KEYS[2], 'version:' .. ARGV[3]) or '',
  redis.call('HGET', KEYS[2], 'value:' .. ARGV[3]) or '',
}
