//! The lines of the stores that the models repeat: scripts of Redis, and functions of PostgreSQL. If one of them has
//! changed, look at the model, and then at its table here.

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

/// A file of `crates/postgres/src/schema`, a function in it, and a part of that function. The parts of a function are
/// in their order. Its line breaks and comments do not matter.
const PARTS: [(&str, &str, &str); 37] = [
    // `Insert`, `Commit`: the id is free and not remembered, and the row has the number of its transaction.
    ("0001_calls.sql", "store_timer", "v_number := pg_current_xact_id();"),
    ("0001_calls.sql", "store_timer", "FROM tourbillon.timer t WHERE t.id = p_id FOR UPDATE;"),
    ("0001_calls.sql", "store_timer", "FROM tourbillon.remembered r WHERE r.id = p_id AND r.until > p_now;"),
    ("0001_calls.sql", "store_timer", "INSERT INTO tourbillon.timer (id, due, created, xid,"),
    ("0001_calls.sql", "store_timer", "VALUES (p_id, v_due, p_now, tourbillon.xid_for(v_due, p_now),"),
    ("0001_calls.sql", "store_timer", "ON CONFLICT DO NOTHING; IF FOUND THEN"),
    ("0001_calls.sql", "store_timer", "PERFORM tourbillon.check_not_remembered(p_id, p_now);"),
    ("0001.sql", "check_not_remembered", "remembered r WHERE r.id = p_id AND r.until > p_now;"),
    ("0001.sql", "xid_for", "THEN pg_current_xact_id() END"),
    // `BeginCancel`, `Cancel`: the lock of the row, and then a look for its lease.
    ("0001_calls.sql", "withdraw_named", "v_id := tourbillon.lock_at("),
    ("0001_calls.sql", "withdraw_named", "tourbillon.withdraw_locked(v_id, 'c',"),
    ("0001.sql", "lock_at", "FROM tourbillon.timer t WHERE t.id = p_id FOR UPDATE;"),
    ("0001.sql", "lock_at", "t.key = p_key AND t.phase IN ('p', 'k') FOR UPDATE;"),
    ("0001.sql", "withdraw_locked", "IF tourbillon.is_leased(p_id) THEN"),
    ("0001.sql", "withdraw_locked", "UPDATE tourbillon.timer t SET phase = p_mark WHERE t.id = p_id;"),
    ("0001.sql", "withdraw_locked", "PERFORM tourbillon.remove_locked(p_id, p_now);"),
    ("0001.sql", "is_leased", "PERFORM 1 FROM tourbillon.lease l WHERE l.id = p_id;"),
    ("0001.sql", "is_leased", "PERFORM tourbillon.check_no_hidden_lease(p_id);"),
    ("0001.sql", "check_no_hidden_lease", "ON CONFLICT (id) DO NOTHING;"),
    ("0001.sql", "remove_locked", "INSERT INTO tourbillon.remembered"),
    // `Own`: the row of a dead owner is deleted before another node takes its shards.
    ("0001_store.sql", "sign", "DELETE FROM tourbillon.node n WHERE n.incarnation = v_dead;"),
    ("0001_store.sql", "sign", "UPDATE tourbillon.shard s SET owner = p_node, epoch = s.epoch + 1,"),
    ("0001_store.sql", "sign", "AND (s.owner IS NULL OR s.owner <> ALL (v_live));"),
    ("0001_store.sql", "owned_by", "string_agg(s.number || ':' || s.epoch,"),
    // `Look`: the lock of the node's row, the shards, the marks, and the transactions that the last look did not see.
    ("0001_store.sql", "claim", "FROM tourbillon.node n WHERE n.incarnation = p_node FOR SHARE;"),
    ("0001_store.sql", "claim", "INTO v_shards FROM tourbillon.shard s WHERE s.owner = p_node;"),
    ("0001_store.sql", "claim", "IF v_owned IS DISTINCT FROM p_owned OR"),
    ("0001_store.sql", "claim", "FROM pg_snapshot_xip(v_seen) AS x (xid)"),
    ("0001_store.sql", "claim", "t.xid >= pg_snapshot_xmax(v_seen)"),
    ("0001_store.sql", "claim", "v_from_due[v_k] := v_left[v_k] - 1;"),
    // `Take`: rows that are locked are passed over, and a lease is looked for after the lock. The first insertion is
    // for transactions whose statements have one snapshot.
    ("0001_store.sql", "claim", "WHERE t.id = ANY (v_found) FOR UPDATE SKIP LOCKED"),
    (
        "0001_store.sql",
        "claim",
        "IF tourbillon.has_one_snapshot() THEN
            INSERT INTO tourbillon.lease (id, until, incarnation, claim, namespace)
            SELECT t.id, v_now + p_lease, p_incarnation, p_claim, t.namespace
            FROM tourbillon.timer t WHERE t.id = ANY (v_taken) ON CONFLICT (id) DO NOTHING;",
    ),
    (
        "0001_store.sql",
        "claim",
        "INSERT INTO tourbillon.lease (id, until, incarnation, claim, namespace)
            SELECT t.id, v_now + p_lease, p_incarnation, p_claim, t.namespace
            FROM tourbillon.timer t WHERE t.id = ANY (v_taken)
                AND (SELECT l.until FROM tourbillon.lease l WHERE l.id = t.id) IS NULL;",
    ),
    // `Done`: the lock of the row, and then the comparison of the token.
    ("0001_calls.sql", "end_named", "FROM tourbillon.timer t WHERE t.id = p_id FOR UPDATE;"),
    (
        "0001_calls.sql",
        "end_named",
        "FROM tourbillon.lease l WHERE l.id = p_id
         AND l.incarnation = ('x' || left(v_token, 16))::bit(64)::bigint
         AND l.claim = ('x' || right(v_token, 16))::bit(64)::bigint;",
    ),
    ("0001_calls.sql", "end_named", "USING ERRCODE = 'TB001';"),
    ("0001_calls.sql", "end_named", "PERFORM tourbillon.remove_locked(p_id,"),
];

#[test]
fn the_lines_that_the_model_of_redis_repeats_are_there() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/redis/src");
    for (file, number, part) in LINES {
        let text = fs::read_to_string(folder.join(file)).unwrap();
        let line = text.lines().nth(number - 1).unwrap();
        assert!(line.contains(part), "{file}:{number} is now: {line}");
    }
}

#[test]
fn the_parts_of_functions_that_the_model_of_postgres_repeats_are_there() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/postgres/src/schema");
    // The function of the last part, and the place behind this part.
    let (mut last, mut after) = (("", ""), 0);
    for (file, name, part) in PARTS {
        if last != (file, name) {
            (last, after) = ((file, name), 0);
        }
        let text = fs::read_to_string(folder.join(file)).unwrap();
        let begin = format!("CREATE FUNCTION tourbillon.{name}(");
        let (_, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("{file} has no function {name}"));
        // The text of a function is between two `$$`.
        let (function, _) = rest.split_once("$$;").unwrap();
        let lines = function.lines().map(|line| line.split_once("--").map_or(line, |(code, _)| code));
        let function = in_one_line(&lines.collect::<Vec<_>>().join("\n"));
        let part = in_one_line(part);
        let found = function[after..].find(&part);
        after += found.unwrap_or_else(|| panic!("{file}: not in {name}, or not in its order: {part}"));
        after += part.len();
    }
}

/// Returns a text with one space in place of each line break and each run of spaces.
fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
