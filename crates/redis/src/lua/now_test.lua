-- The beginning of every script in a deployment that was created on a test clock: the caller has the time.
local now = tonumber(ARGV[1])
