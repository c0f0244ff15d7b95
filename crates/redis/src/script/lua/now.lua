-- The beginning of every script: the server's time decides what is due and which leases have ended.
-- ARGV[1] is for deployments on a test clock only, and is not read here.
-- The last key never exists: see `absent` in layout/keys.rs. The script does not see it.
KEYS[#KEYS] = nil
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
