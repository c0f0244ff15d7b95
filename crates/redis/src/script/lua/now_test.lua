-- The beginning of every script in a deployment that was created on a test clock: the caller has the time.
-- The last key never exists: see `absent` in layout/keys.rs. The script does not see it.
KEYS[#KEYS] = nil
local now = tonumber(ARGV[1])
