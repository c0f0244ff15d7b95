-- The beginning of every script: the server's time decides what is due and which leases have ended.
-- The last key never exists: see `absent` in layout/keys.rs. The script does not see it.
KEYS[#KEYS] = nil
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
-- ARGV[1] is the moment from which the script has no effect, or nothing.
local limit = tonumber(ARGV[1])
if limit and now >= limit then return redis.error_reply('LATE the time for this call is over') end
