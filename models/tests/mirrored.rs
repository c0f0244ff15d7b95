//! The lines that the model of Redis repeats. If one of them has changed, look at the model, and then at this table.

use std::fs;
use std::path::Path;

/// A file of `crates/redis/src`, a line, and a part of that line.
const LINES: [(&str, usize, &str); 17] = [
    ("script/lua/create.lua", 28, "is_free = is_marked and not (record"),
    ("script/lua/create.lua", 29, "remembered[n]"),
    ("script/lua/claim.lua", 152, "local is_held = owner and rest > 0"),
    ("script/lua/claim.lua", 158, "elseif owner == node then"),
    ("script/lua/claim.lua", 162, "elseif is_held then"),
    ("script/lua/claim.lua", 165, "'owner', node, 'until', ends"),
    ("script/lua/claim.lua", 182, "if owned[shard] == 1 then"),
    ("script/lua/claim.lua", 336, "redis.call('ZREM', KEYS[run.slice]"),
    ("script/lua/claim.lua", 356, "redis.call('HSET', KEYS[base + 3], unpack(fields))"),
    ("script/lua/commit.lua", 45, "failed = redis.call('HGET', KEYS[key], expected)"),
    ("script/lua/commit.lua", 50, "if not redis.call('ZSCORE', KEYS[key], expected)"),
    ("script/lua/commit.lua", 53, "if value ~= ARGV[place] then failed"),
    ("script/lua/commit.lua", 57, "tonumber(score) > now then failed"),
    ("script/lua/end_many.lua", 39, "if not scores[n] or tokens[n] ~= ARGV[marks + n - 1] then"),
    ("script/lua/renew.lua", 14, "string.sub(held, 1, 16) == ARGV[n + 1]"),
    ("script/lua/expired.lua", 16, "tonumber(over[n + 1]) <= now"),
    ("script/lua/recover.lua", 14, "string.sub(held[n + 1], 1, 16) == ARGV[2]"),
];

#[test]
fn the_lines_that_the_model_repeats_are_there() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/redis/src");
    for (file, number, part) in LINES {
        let text = fs::read_to_string(folder.join(file)).unwrap();
        let line = text.lines().nth(number - 1).unwrap();
        assert!(line.contains(part), "{file}:{number} is now: {line}");
    }
}
