-- Migration 1, third part: the functions of the store. Callers have no right to them. `p_now` is the time of a test
-- clock; NULL means the time of this server.

-- The timers with their leases, as the store reads them.
CREATE VIEW tourbillon.stored_timer AS
    SELECT t.id, t.due, t.created, t.phase::text AS phase, t.namespace, t.key, t.kind, t.payload, t.labels, t.reason,
        t.died, t.extra::text AS extra, l.until, l.incarnation, l.claim, t.lane
    FROM tourbillon.timer t LEFT JOIN tourbillon.lease l ON l.id = t.id;

-- Stores new timers whose ids and keys differ from each other. Returns the ids of those that are stored now. The others
-- have an id or a key that is taken, or an id that is remembered. If another transaction takes an id or a key at the
-- same time, none is stored. The last statement sees the ends of timers that the first one waited for.
--
-- `ON CONFLICT` would write a record of its own to the log for each row. So the ids and keys are looked up first.
CREATE FUNCTION tourbillon.place_many(
    p_now bigint, p_ids uuid[], p_dues bigint[], p_namespaces text[], p_keys text[], p_kinds text[],
    p_payloads bytea[], p_labels text[], p_phases text[], p_reasons text[], p_extras text[], p_sync boolean
) RETURNS SETOF uuid LANGUAGE plpgsql
-- As in `claim`.
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off AS $$
DECLARE v_now CONSTANT bigint := coalesce(p_now, tourbillon.now_ms()); v_made uuid[]; v_old uuid[];
BEGIN
    IF NOT p_sync THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    BEGIN
        WITH made AS (
            INSERT INTO tourbillon.timer
                (id, due, created, xid, shard, phase, namespace, key, kind, payload, labels, reason, extra)
            SELECT n.id, n.due, v_now, tourbillon.xid_for(n.due, v_now), tourbillon.shard_of(n.id), n.phase::"char",
                n.namespace, n.key, n.kind, n.payload,
                CASE WHEN n.labels IS NOT NULL THEN ARRAY(SELECT jsonb_array_elements_text(n.labels::jsonb)) END,
                n.reason, n.extra::jsonb
            FROM unnest(p_ids, p_dues, p_namespaces, p_keys, p_kinds, p_payloads, p_labels, p_phases, p_reasons,
                p_extras) AS n (id, due, namespace, key, kind, payload, labels, phase, reason, extra)
            WHERE (SELECT t.id FROM tourbillon.timer t WHERE t.id = n.id) IS NULL
                AND (n.key IS NULL OR (
                    SELECT t.id FROM tourbillon.timer t
                    WHERE t.namespace = n.namespace AND t.key = n.key AND t.phase IN ('p', 'k')) IS NULL)
                AND (n.extra IS NULL OR NOT EXISTS (
                    SELECT 1 FROM tourbillon.remembered r WHERE r.id = n.id AND r.until > v_now))
            RETURNING timer.id, timer.extra
        )
        SELECT array_agg(m.id), array_agg(m.id) FILTER (WHERE m.extra ? 'chosen') INTO v_made, v_old FROM made m;
    EXCEPTION WHEN unique_violation THEN
        RETURN;
    END;
    IF v_old IS NOT NULL THEN
        SELECT array_agg(r.id) INTO v_old FROM tourbillon.remembered r WHERE r.id = ANY (v_old) AND r.until > v_now;
        IF v_old IS NOT NULL THEN
            DELETE FROM tourbillon.timer t WHERE t.id = ANY (v_old);
        END IF;
    END IF;
    IF EXISTS (SELECT 1 FROM unnest(p_dues, p_phases) AS n (due, phase) WHERE n.due < v_now + 250 AND n.phase = 'p')
    THEN
        PERFORM tourbillon.wake(v_now);
    END IF;
    RETURN QUERY SELECT m FROM unnest(v_made) m WHERE v_old IS NULL OR m <> ALL (v_old);
END $$;

-- Ends deliveries whose timers leave nothing behind: no next occurrence of a series follows. Returns the ids of the
-- timers that are gone, and which of them were withdrawn during the lease. The lease is deleted first: whoever deletes
-- it ends the delivery. A reap that holds the timer passes over the lease, and a withdrawal that holds the timer is
-- waited for.
CREATE FUNCTION tourbillon.end_many(
    p_now bigint, p_ids uuid[], p_incarnations bigint[], p_claims bigint[], p_sync boolean
) RETURNS TABLE (ended uuid, is_withdrawn boolean) LANGUAGE plpgsql
-- Each statement finds its rows by indexes, also while the statistics are of a time when the tables were empty.
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off AS $$
DECLARE v_now CONSTANT bigint := coalesce(p_now, tourbillon.now_ms()); v_held uuid[]; v_ids uuid[];
    v_withdrawn boolean[];
BEGIN
    IF NOT p_sync THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    -- A timer without a series never gets one, and a withdrawn timer stays withdrawn.
    WITH held AS (
        DELETE FROM tourbillon.lease l
        USING unnest(p_ids, p_incarnations, p_claims) AS e (id, incarnation, claim), tourbillon.timer t
        WHERE l.id = e.id AND l.incarnation = e.incarnation AND l.claim = e.claim AND t.id = l.id
            AND (t.extra IS NULL OR NOT t.extra ? 'series' OR t.phase <> 'p')
        RETURNING l.id
    )
    SELECT array_agg(h.id ORDER BY h.id) INTO v_held FROM held h;
    WITH gone AS (
        DELETE FROM tourbillon.timer t WHERE t.id = ANY (v_held) RETURNING t.id, t.extra, t.phase
    ), kept AS (
        INSERT INTO tourbillon.remembered AS r (id, until)
        SELECT g.id, v_now + 3600000 FROM gone g WHERE g.extra ? 'chosen'
        ON CONFLICT (id) DO UPDATE SET until = excluded.until
    )
    SELECT array_agg(g.id), array_agg(g.phase <> 'p') INTO v_ids, v_withdrawn FROM gone g;
    RETURN QUERY SELECT n.id, n.withdrawn FROM unnest(v_ids, v_withdrawn) AS n (id, withdrawn);
END $$;

-- Returns the shards of a node, as text: the lifetime of the server's memory with the start of its first process, and
-- each shard with its epoch.
CREATE FUNCTION tourbillon.owned_by(p_node bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE v_life uuid; v_owned text;
BEGIN
    SELECT f.id INTO v_life FROM tourbillon.lifetime f;
    IF v_life IS NULL THEN
        INSERT INTO tourbillon.lifetime DEFAULT VALUES ON CONFLICT DO NOTHING;
        SELECT f.id INTO v_life FROM tourbillon.lifetime f;
    END IF;
    SELECT string_agg(s.number || ':' || s.epoch, ',' ORDER BY s.number) INTO v_owned
    FROM tourbillon.shard s WHERE s.owner = p_node;
    RETURN v_life || '@' || floor(extract(epoch FROM pg_postmaster_start_time()) * 1000) || ' ' || coalesce(v_owned, '');
END $$;

-- Returns how many more places a lane may take, as the function `free_for` of the crate durable computes it.
CREATE FUNCTION tourbillon.free_for(p_has bigint, p_free bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$ SELECT (greatest(3 * p_free - p_has, 0) + 3) / 4 $$;

-- Returns the number that the server gives next to a transaction. If this transaction has a number, returns that one. A
-- snapshot does not tell it: it leaves out the open transactions that have got numbers since the last one ended.
CREATE FUNCTION tourbillon.free_number() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT pg_snapshot_xmax(s)::text::bigint + age(pg_snapshot_xmax(s)::xid) FROM pg_current_snapshot() s
$$;

-- Returns the due moment of the first timer of a lane behind a place that is in one of the shards, has no lease, and is
-- not among `p_held`. Looks at 256 entries at most. If none of them is such a timer, the moment is that of the last
-- one, which is too early. So a node without shards must not ask.
CREATE FUNCTION tourbillon.first_left(p_lane int, p_due bigint, p_id uuid, p_shards smallint[], p_held uuid[])
RETURNS TABLE (due bigint) LANGUAGE sql STABLE AS $$
    SELECT r.due FROM (
        SELECT e.due, e.id, e.shard, row_number() OVER (ORDER BY e.due, e.id) = 256 AS is_end FROM (
            SELECT t.due, t.id, t.shard FROM tourbillon.timer t
            WHERE t.lane = p_lane AND t.phase = 'p' AND (t.due, t.id) > (p_due, p_id)
            ORDER BY t.due, t.id LIMIT 256
        ) e
    ) r
    WHERE r.is_end OR r.shard = ANY (p_shards) AND r.id <> ALL (p_held)
        AND (SELECT l.until FROM tourbillon.lease l WHERE l.id = r.id) IS NULL
    ORDER BY r.due, r.id LIMIT 1
$$;

-- Ends each later wait of this transaction for a lock after nine tenths of a time in milliseconds. A process that gives
-- an answer up after this time leaves no session that still waits.
CREATE FUNCTION tourbillon.wait_at_most(p_ms bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('lock_timeout', greatest(least(p_ms, 2000000000) * 9 / 10, 1)::text, true);
END $$;

-- Leases due timers in the shards of a node.
--
-- The node's row is locked first: a node that takes shards over locks it, too. So the shards that the next statement
-- reads are this node's until this transaction ends.
--
-- `p_mark_due` and `p_mark_id` are the low-water mark. A lane of `p_lanes` has a mark of its own, which is before the
-- other. All timers up to the mark of their lane that were visible in the snapshot `p_seen` are leased, or are among
-- `p_again`. The second look finds those that were written by transactions which that snapshot did not show. The marks
-- hold for the shards `p_owned` only.
--
-- `p_shares` has the shares of the claim in JSON; NULL for a claim by the due moments alone. `free` is the number of
-- free places for deliveries, and `has` the number of deliveries under way by namespace. A timer that is late by more
-- than `after` needs a permit: a namespace has the permits of `left`, or else `each`. Without `after` no permits are
-- needed. All rules are applied to lanes.
--
-- The first row has `head`, in JSON; the others are the leased timers in the order of their due moments.
CREATE FUNCTION tourbillon.claim(
    p_now bigint, p_node bigint, p_incarnation bigint, p_claim bigint, p_lease bigint, p_timers bigint,
    p_bytes bigint, p_owned text, p_mark_due bigint, p_mark_id uuid, p_seen text, p_again uuid[],
    p_lanes smallint[] DEFAULT '{}', p_lane_dues bigint[] DEFAULT '{}', p_lane_ids uuid[] DEFAULT '{}',
    p_shares text DEFAULT NULL
) RETURNS TABLE (
    head text, id uuid, due bigint, created bigint, phase text, namespace text, key text, kind text, payload bytea,
    labels text[], reason text, died bigint, extra text, until bigint, incarnation bigint, claim bigint
) LANGUAGE plpgsql
-- Each statement finds its rows by indexes, also while the statistics are of a time when the tables were empty. For the
-- same reason a lease is looked up by a scalar subquery, which the planner cannot turn into a join.
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_nil CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
    v_last CONSTANT uuid := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
    -- The greatest number of rows that a second look reads.
    v_fresh_most CONSTANT bigint := 20000;
    v_now bigint; v_node bigint; v_ttl bigint; v_shards smallint[]; v_owned text; v_snapshot pg_snapshot;
    v_seen pg_snapshot := p_seen::pg_snapshot;
    -- The shares.
    v_shares CONSTANT jsonb := p_shares::jsonb; v_free CONSTANT bigint := v_shares ->> 'free';
    v_after CONSTANT bigint := v_shares ->> 'after'; v_room CONSTANT bigint := least(p_timers, v_free);
    v_lane smallint; v_number bigint;
    -- By lane: the beginning of the scan, the deliveries under way, the permits for late timers, whether timers were
    -- left by the last claim, the most that it may take, and the number that it names.
    v_from_due bigint[] := array_fill(p_mark_due, ARRAY[64]); v_from_id uuid[] := array_fill(p_mark_id, ARRAY[64]);
    v_has bigint[] := array_fill(0::bigint, ARRAY[64]); v_permits bigint[]; v_waits boolean[]; v_most bigint[];
    v_each bigint[]; v_open smallint[];
    -- The candidates, in the order in which they are asked for.
    v_ids uuid[]; v_dues bigint[]; v_lanes int[]; v_sizes bigint[]; v_are_late boolean[];
    -- By lane: the candidates that are named, whether more may follow, and the last entry that a scan has read.
    v_named bigint[]; v_are_cut boolean[]; v_end_dues bigint[]; v_end_ids uuid[];
    v_grow smallint[]; v_fresh bigint;
    -- The choice: in all and by lane.
    v_found uuid[] := '{}'; v_sum bigint := 0; v_all bigint := 0; v_is_full boolean := false; v_k int;
    v_took bigint[] := array_fill(0::bigint, ARRAY[64]); v_scanned bigint[] := v_took; v_closed boolean[];
    v_left bigint[] := array_fill(NULL::bigint, ARRAY[64]);
    -- The timers that others held at the last claim: those that are free now, and those that are still held.
    v_again uuid[] := '{}'; v_stuck uuid[] := '{}';
    v_taken uuid[]; v_held uuid[] := '{}'; v_held_dues bigint[]; v_held_lanes int[];
    v_next bigint; v_next_claim bigint; v_withheld smallint[]; v_behind jsonb;
BEGIN
    -- A lease need not survive a crash of the server: the timer is then claimed again.
    PERFORM set_config('synchronous_commit', 'off', true);
    SELECT n.incarnation, n.ttl INTO v_node, v_ttl FROM tourbillon.node n WHERE n.incarnation = p_node FOR SHARE;
    v_now := coalesce(p_now, tourbillon.now_ms());
    IF v_node IS NULL THEN
        head := json_build_object('now', v_now, 'gone', true);
        RETURN NEXT;
        RETURN;
    END IF;
    -- The node waits for the answer for its `ttl`. What is leased later would have no holder.
    PERFORM tourbillon.wait_at_most(v_ttl);
    SELECT coalesce(array_agg(s.number), '{}') INTO v_shards FROM tourbillon.shard s WHERE s.owner = p_node;
    v_owned := tourbillon.owned_by(p_node);
    IF v_shards = '{}' THEN
        -- No timer is this node's, however many are due. The marks start again with the node's first shard.
        head := json_build_object('now', v_now, 'gone', false, 'owned', v_owned, 'mark_due', v_now,
            'mark_id', v_last, 'seen', pg_current_snapshot()::text, 'free', tourbillon.free_number());
        RETURN NEXT;
        RETURN;
    END IF;
    FOR i IN 1 .. cardinality(p_lanes) LOOP
        v_from_due[p_lanes[i] + 1] := p_lane_dues[i];
        v_from_id[p_lanes[i] + 1] := p_lane_ids[i];
    END LOOP;
    IF v_owned IS DISTINCT FROM p_owned OR v_now < p_mark_due OR v_seen IS NULL THEN
        -- Shards have come or gone, or the clock went back: begin at the first timer.
        v_from_due := array_fill(-1::bigint, ARRAY[64]);
        v_from_id := array_fill(v_nil, ARRAY[64]);
        v_seen := NULL;
    END IF;
    IF v_free IS NOT NULL THEN
        FOR v_lane, v_number IN
            SELECT tourbillon.lane_of(e.key), sum(e.value::bigint) FROM jsonb_each_text(v_shares -> 'has') e GROUP BY 1
        LOOP
            v_has[v_lane + 1] := v_number;
        END LOOP;
        v_permits := array_fill(coalesce((v_shares ->> 'each')::bigint, 0), ARRAY[64]);
        FOR v_lane, v_number IN
            SELECT tourbillon.lane_of(e.key), min(e.value::bigint) FROM jsonb_each_text(v_shares -> 'left') e
            GROUP BY 1
        LOOP
            v_permits[v_lane + 1] := least(v_permits[v_lane + 1], v_number);
        END LOOP;
    END IF;
    SELECT array_agg(n.most ORDER BY n.lane), array_agg(least(2 * p_timers / 16 + 8, n.most) ORDER BY n.lane),
        coalesce(array_agg(n.lane ORDER BY n.lane) FILTER (WHERE n.most > 0), '{}'), array_agg(n.most <= 0 ORDER BY n.lane),
        array_agg(v_free IS NOT NULL AND n.lane = ANY (p_lanes) ORDER BY n.lane)
    INTO v_most, v_each, v_open, v_closed, v_waits
    FROM (
        SELECT l::smallint AS lane, CASE WHEN v_free IS NULL THEN p_timers + 1 ELSE
            least(tourbillon.free_for(0, p_timers), tourbillon.free_for(v_has[l + 1], v_free)) END AS most
        FROM generate_series(0, 63) l
    ) n;
    IF v_seen IS NOT NULL AND cardinality(p_again) > 0 THEN
        -- A timer that is still held takes no place of others. In a lane that has its share, the mark goes back to it.
        WITH asked AS (
            SELECT t.id FROM tourbillon.timer t WHERE t.id = ANY (p_again) AND NOT v_closed[t.lane + 1]
            FOR UPDATE SKIP LOCKED
        ) SELECT coalesce(array_agg(a.id), '{}') INTO v_again FROM asked a;
        SELECT coalesce(array_agg(t.id), '{}') INTO v_stuck FROM unnest(p_again) AS k (id),
            LATERAL (SELECT t.* FROM tourbillon.timer t WHERE t.id = k.id OFFSET 0) t
        WHERE k.id <> ALL (v_again) AND t.phase = 'p' AND NOT v_closed[t.lane + 1]
            AND (SELECT l.until FROM tourbillon.lease l WHERE l.id = t.id) IS NULL;
    END IF;
    -- Each lane names some timers. If the wanted number of timers may lie behind the last one of a lane, that lane
    -- names more.
    LOOP
    -- One statement chooses, so the snapshot is that by which the timers were chosen. It shows no timer of an open
    -- transaction, so the index is not read for such transactions. A session keeps its plans, which may be of a time
    -- when the table was empty. Then all indexes seem equally cheap. So the numbers of transactions are ranges in an
    -- order that `timer_xid` alone has, and ids are looked up one by one behind `OFFSET 0`, which keeps the planner
    -- from testing them on the entries of another index.
    WITH fresh AS (
        (SELECT f.* FROM pg_snapshot_xip(v_seen) AS x (xid), LATERAL (
            SELECT t.lane, t.due, t.id, t.shard, octet_length(t.payload) AS bytes FROM tourbillon.timer t
            WHERE t.phase = 'p' AND t.xid >= x.xid AND t.xid <= x.xid ORDER BY t.xid LIMIT v_fresh_most + 1
        ) f
        WHERE v_seen IS NOT NULL AND pg_visible_in_snapshot(x.xid, pg_current_snapshot())
        LIMIT v_fresh_most + 1)
        UNION ALL
        (SELECT t.lane, t.due, t.id, t.shard, octet_length(t.payload) AS bytes FROM tourbillon.timer t
        WHERE v_seen IS NOT NULL AND t.phase = 'p' AND t.xid >= pg_snapshot_xmax(v_seen)
            AND t.xid < pg_snapshot_xmax(pg_current_snapshot())
        ORDER BY t.xid LIMIT v_fresh_most + 1)
    ), late AS (
        SELECT DISTINCT e.lane, e.due, e.id, e.bytes FROM (
            SELECT f.* FROM fresh f
            UNION ALL
            SELECT t.lane, t.due, t.id, t.shard, octet_length(t.payload) FROM unnest(p_again) AS k (id),
                LATERAL (SELECT t.* FROM tourbillon.timer t WHERE t.id = k.id OFFSET 0) t
            WHERE k.id <> ALL (v_stuck) AND t.phase = 'p'
        ) e
        WHERE e.shard = ANY (v_shards) AND (e.due, e.id) <= (v_from_due[e.lane + 1], v_from_id[e.lane + 1])
            AND (SELECT l.until FROM tourbillon.lease l WHERE l.id = e.id) IS NULL
    ), first AS (
        SELECT s.lane, c.due, c.id, c.bytes, c.fits, c.is_end FROM unnest(v_open) AS s (lane), LATERAL (
            SELECT r.* FROM (
                SELECT e.due, e.id, e.bytes, e.shard = ANY (v_shards) AND e.id <> ALL (v_stuck)
                        AND (SELECT l.until FROM tourbillon.lease l WHERE l.id = e.id) IS NULL AS fits,
                    row_number() OVER (ORDER BY e.due, e.id) = 8 * v_each[s.lane + 1] + 256 AS is_end
                FROM (
                    SELECT t.due, t.id, t.shard, octet_length(t.payload) AS bytes FROM tourbillon.timer t
                    WHERE t.lane = s.lane AND t.phase = 'p' AND t.due <= v_now
                        AND (t.due, t.id) > (v_from_due[s.lane + 1], v_from_id[s.lane + 1])
                    ORDER BY t.due, t.id LIMIT 8 * v_each[s.lane + 1] + 256
                ) e
            ) r WHERE r.fits OR r.is_end ORDER BY r.due, r.id LIMIT v_each[s.lane + 1]
        ) c
    ), by_lane AS (
        SELECT f.lane, count(*) FILTER (WHERE f.fits) AS named, max(f.due) FILTER (WHERE f.is_end) AS end_due,
            (array_agg(f.id) FILTER (WHERE f.is_end))[1] AS end_id,
            count(*) >= v_each[f.lane + 1] AS is_cut,
            count(*) >= v_each[f.lane + 1] AND v_each[f.lane + 1] < v_most[f.lane + 1] AND NOT bool_or(f.is_end)
                AS may_grow,
            max(f.due) AS last_due, (array_agg(f.id ORDER BY f.due DESC, f.id DESC))[1] AS last_id
        FROM first f GROUP BY f.lane
    ), wanted AS (
        SELECT f.due, f.id FROM first f WHERE f.fits ORDER BY f.due, f.id OFFSET greatest(p_timers - 1, 0) LIMIT 1
    ), bound AS (
        SELECT b.last_due, b.last_id FROM by_lane b WHERE b.may_grow ORDER BY 1, 2 LIMIT 1
    ), candidate AS (
        SELECT e.lane, e.due, e.id, e.bytes, true AS is_late FROM late e
        UNION ALL
        SELECT f.lane, f.due, f.id, f.bytes, false FROM first f
        -- With shares, a lane that could name more holds up no other lane: its own rules may refuse its timers.
        WHERE f.fits AND (v_free IS NOT NULL OR NOT EXISTS (SELECT 1 FROM bound)
            OR (f.due, f.id) <= (SELECT b.last_due, b.last_id FROM bound b))
    ), ranked AS (
        SELECT c.*, row_number() OVER (PARTITION BY c.lane ORDER BY c.due, c.id)
            > greatest(v_room / (SELECT count(DISTINCT o.lane) FROM candidate o), 1) AS is_rest
        FROM candidate c
    ), ordered AS (
        SELECT r.*, row_number() OVER (ORDER BY v_waits[r.lane + 1] AND r.is_rest, r.due, r.id) AS place FROM ranked r
    ), listed AS (
        SELECT array_agg(o.id ORDER BY o.place) AS ids, array_agg(o.due ORDER BY o.place) AS dues,
            array_agg(o.lane + 1 ORDER BY o.place) AS lanes, array_agg(o.bytes::bigint ORDER BY o.place) AS sizes,
            array_agg(o.is_late ORDER BY o.place) AS are_late
        FROM ordered o
    ), summed AS (
        SELECT array_agg(coalesce(b.named, 0) ORDER BY l) AS named,
            array_agg(coalesce(b.is_cut OR b.end_due IS NOT NULL, false) ORDER BY l) AS are_cut,
            array_agg(b.end_due ORDER BY l) AS end_dues, array_agg(b.end_id ORDER BY l) AS end_ids
        FROM generate_series(0, 63) l LEFT JOIN by_lane b ON b.lane = l
    )
    SELECT i.ids, i.dues, i.lanes, i.sizes, i.are_late, s.named, s.are_cut, s.end_dues, s.end_ids,
        (SELECT array_agg(b.lane) FROM by_lane b WHERE b.may_grow AND (NOT EXISTS (SELECT 1 FROM wanted)
            OR (b.last_due, b.last_id) < (SELECT w.due, w.id FROM wanted w))),
        (SELECT count(*) FROM fresh), pg_current_snapshot()
    INTO v_ids, v_dues, v_lanes, v_sizes, v_are_late, v_named, v_are_cut, v_end_dues, v_end_ids, v_grow, v_fresh,
        v_snapshot
    FROM listed i, summed s;
    IF v_fresh > v_fresh_most THEN
        -- So much was written that the scan from the first timer on is cheaper.
        v_from_due := array_fill(-1::bigint, ARRAY[64]);
        v_from_id := array_fill(v_nil, ARRAY[64]);
        v_seen := NULL;
        CONTINUE;
    END IF;
    EXIT WHEN v_grow IS NULL;
    FOREACH v_lane IN ARRAY v_grow LOOP
        v_each[v_lane + 1] := least(8 * v_each[v_lane + 1], v_most[v_lane + 1]);
    END LOOP;
    END LOOP;

    -- A lane takes its timers in order. Once one of them is left, the others are left, too.
    FOR i IN 1 .. coalesce(cardinality(v_ids), 0) LOOP
        v_k := v_lanes[i];
        v_is_full := v_is_full OR v_all >= p_timers OR v_sum > 0 AND v_sum >= p_bytes;
        IF NOT v_is_full AND NOT v_closed[v_k] AND (v_free IS NULL OR 3 * (p_timers - v_all) > v_took[v_k]
            AND 3 * (v_free - v_all) > v_has[v_k] + v_took[v_k]
            AND (v_after IS NULL OR v_now - v_dues[i] <= v_after OR v_permits[v_k] > 0)) THEN
            v_found := v_found || v_ids[i];
            v_all := v_all + 1;
            v_sum := v_sum + v_sizes[i];
            v_took[v_k] := v_took[v_k] + 1;
            IF v_after IS NOT NULL AND v_now - v_dues[i] > v_after THEN
                v_permits[v_k] := v_permits[v_k] - 1;
            END IF;
            IF NOT v_are_late[i] THEN
                v_scanned[v_k] := v_scanned[v_k] + 1;
                v_from_due[v_k] := v_dues[i];
                v_from_id[v_k] := v_ids[i];
            END IF;
        ELSE
            v_closed[v_k] := true;
            IF v_are_late[i] AND v_left[v_k] IS NULL THEN
                v_left[v_k] := v_dues[i];
            END IF;
        END IF;
    END LOOP;
    -- The new marks. The mark of a lane is before the first timer that is left.
    FOR v_k IN 1 .. 64 LOOP
        IF v_left[v_k] IS NOT NULL THEN
            v_from_due[v_k] := v_left[v_k] - 1;
            v_from_id[v_k] := v_last;
        ELSIF v_most[v_k] > 0 AND v_scanned[v_k] = v_named[v_k] THEN
            IF NOT v_are_cut[v_k] THEN
                v_from_due[v_k] := v_now;
                v_from_id[v_k] := v_last;
            ELSIF v_end_dues[v_k] IS NOT NULL THEN
                v_from_due[v_k] := v_end_dues[v_k];
                v_from_id[v_k] := v_end_ids[v_k];
            END IF;
        END IF;
    END LOOP;
    -- The timers are locked. Those that another transaction holds are passed over, and asked for again by their ids.
    WITH locked AS (
        SELECT t.id, t.phase = 'p' AND t.due <= v_now AS fits FROM tourbillon.timer t WHERE t.id = ANY (v_found)
        FOR UPDATE SKIP LOCKED
    ) SELECT coalesce(array_agg(k.id) FILTER (WHERE k.fits), '{}') INTO v_taken FROM locked k;
    IF cardinality(v_taken) < cardinality(v_found) THEN
        -- A timer that was moved or removed while it was chosen is found by its new transaction, or is gone.
        SELECT coalesce(array_agg(t.id), '{}'), array_agg(t.due), array_agg(t.lane + 1)
        INTO v_held, v_held_dues, v_held_lanes
        FROM unnest(v_found) AS k (id), LATERAL (SELECT t.* FROM tourbillon.timer t WHERE t.id = k.id OFFSET 0) t
        WHERE k.id <> ALL (v_taken) AND t.phase = 'p'
            AND (SELECT l.until FROM tourbillon.lease l WHERE l.id = t.id) IS NULL;
        FOR i IN 1 .. cardinality(v_held) LOOP
            v_k := v_held_lanes[i];
            v_all := v_all - 1;
            v_took[v_k] := v_took[v_k] - 1;
            IF v_after IS NOT NULL AND v_now - v_held_dues[i] > v_after THEN
                v_permits[v_k] := v_permits[v_k] + 1;
            END IF;
        END LOOP;
    END IF;
    v_held := v_held || v_stuck;
    -- Whoever inserts a lease holds the lock of its timer. So no other transaction inserts one of these at the same
    -- time, and a lease is hidden from a snapshot that is older than the lock only. `ON CONFLICT` would write a record
    -- of its own to the log for each row.
    IF tourbillon.has_one_snapshot() THEN
        INSERT INTO tourbillon.lease (id, until, incarnation, claim, namespace)
        SELECT t.id, v_now + p_lease, p_incarnation, p_claim, t.namespace
        FROM tourbillon.timer t WHERE t.id = ANY (v_taken) ON CONFLICT (id) DO NOTHING;
    ELSE
        INSERT INTO tourbillon.lease (id, until, incarnation, claim, namespace)
        SELECT t.id, v_now + p_lease, p_incarnation, p_claim, t.namespace
        FROM tourbillon.timer t WHERE t.id = ANY (v_taken)
            AND (SELECT l.until FROM tourbillon.lease l WHERE l.id = t.id) IS NULL;
    END IF;
    -- The first timer that is left of each lane. A due one is withheld if the lane has no room or no permit.
    SELECT min(c.due), min(c.due) FILTER (WHERE c.due > v_now OR c.is_permitted),
        coalesce(array_agg(c.lane) FILTER (WHERE c.due <= v_now AND NOT c.is_permitted), '{}')
    INTO v_next, v_next_claim, v_withheld
    FROM (
        SELECT (n.k - 1)::smallint AS lane, f.due, v_free IS NULL OR 3 * (v_free - v_all) > v_has[n.k] + v_took[n.k]
            AND (v_after IS NULL OR v_now - f.due <= v_after OR v_permits[n.k] > 0) AS is_permitted
        FROM generate_series(1, 64) AS n (k),
            LATERAL tourbillon.first_left(n.k - 1, v_from_due[n.k], v_from_id[n.k], v_shards, v_held) AS f (due)
        WHERE f.due IS NOT NULL
    ) c;
    SELECT coalesce(jsonb_agg(jsonb_build_array(n.k - 1, v_from_due[n.k], v_from_id[n.k])), '[]') INTO v_behind
    FROM generate_series(1, 64) AS n (k) WHERE (v_from_due[n.k], v_from_id[n.k]) <> (v_now, v_last);
    head := json_build_object('now', v_now, 'gone', false, 'owned', v_owned, 'mark_due', v_now,
        'mark_id', v_last, 'seen', v_snapshot::text, 'free', tourbillon.free_number(), 'held', v_held,
        'next', v_next, 'next_claim', v_next_claim,
        'behind', v_behind, 'withheld', v_withheld);
    RETURN NEXT;
    RETURN QUERY SELECT NULL::text, t.id, t.due, t.created, t.phase::text, t.namespace, t.key, t.kind, t.payload,
            t.labels, t.reason, t.died, t.extra::text, l.until, l.incarnation, l.claim
        FROM unnest(v_taken) AS k (id),
            LATERAL (SELECT t.* FROM tourbillon.timer t WHERE t.id = k.id OFFSET 0) t,
            LATERAL (SELECT l.* FROM tourbillon.lease l WHERE l.id = k.id OFFSET 0) l
        WHERE l.incarnation = p_incarnation AND l.claim = p_claim ORDER BY t.due, t.id;
END $$;

-- Leases due timers that are parked for a reason, the longest due first, in the shards of all nodes. Takes up to
-- `p_wanted` timers, and more, up to `p_timers`, only if the same number is left for other nodes. Passes over the
-- timers that other transactions hold. The timer is no longer parked: without its lease it would be pending. An
-- occurrence of a paused series is parked for the reason `p_paused` instead. The first row has the time alone.
CREATE FUNCTION tourbillon.claim_parked(
    p_now bigint, p_incarnation bigint, p_claim bigint, p_lease bigint, p_reason text, p_paused text, p_wanted bigint,
    p_timers bigint, p_bytes bigint
) RETURNS TABLE (
    now bigint, id uuid, due bigint, created bigint, phase text, namespace text, key text, kind text, payload bytea,
    labels text[], reason text, died bigint, extra text, until bigint, incarnation bigint, claim bigint
) LANGUAGE plpgsql
-- As in `claim`.
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now CONSTANT bigint := coalesce(p_now, tourbillon.now_ms());
    v_most bigint; v_look bigint; v_locked uuid[]; v_taken uuid[] := '{}';
BEGIN
    -- A lease need not survive a crash of the server: the timer is parked again then.
    PERFORM set_config('synchronous_commit', 'off', true);
    -- As in `claim`.
    PERFORM tourbillon.wait_at_most((SELECT n.ttl FROM tourbillon.node n WHERE n.incarnation = p_incarnation));
    SELECT least(p_timers, greatest(p_wanted, count(*) / 2)) INTO v_most FROM (
        SELECT 1 FROM tourbillon.timer t WHERE t.phase = 'k' AND t.reason = p_reason AND t.due <= v_now
        ORDER BY t.due, t.id LIMIT 2 * p_timers
    ) c;
    v_look := v_most;
    LOOP
        WITH locked AS (
            SELECT t.id, t.due, octet_length(t.payload) AS bytes,
                coalesce((t.extra #>> '{series,paused}')::boolean, false) AS is_paused
            FROM tourbillon.timer t WHERE t.phase = 'k' AND t.reason = p_reason AND t.due <= v_now
            ORDER BY t.due, t.id LIMIT v_look FOR UPDATE SKIP LOCKED
        ), counted AS (
            SELECT k.*, count(*) FILTER (WHERE NOT k.is_paused) OVER (ORDER BY k.due, k.id) AS place,
                coalesce(sum(k.bytes) FILTER (WHERE NOT k.is_paused)
                OVER (ORDER BY k.due, k.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
            FROM locked k
        ) SELECT coalesce(array_agg(c.id) FILTER (WHERE NOT c.is_paused AND c.place <= v_most
                AND (c.before = 0 OR c.before < p_bytes)), '{}'),
            coalesce(array_agg(c.id) FILTER (WHERE c.is_paused), '{}')
        INTO v_taken, v_locked FROM counted c;
        UPDATE tourbillon.timer t SET reason = p_paused WHERE t.id = ANY (v_locked);
        -- If all were paused, others may follow, perhaps behind many that are paused.
        EXIT WHEN v_locked = '{}' OR v_taken <> '{}' OR p_reason = p_paused;
        v_look := greatest(v_most, 1000);
    END LOOP;
    UPDATE tourbillon.timer t SET phase = 'p', reason = NULL, xid = pg_current_xact_id() WHERE t.id = ANY (v_taken);
    INSERT INTO tourbillon.lease (id, until, incarnation, claim, namespace)
    SELECT t.id, v_now + p_lease, p_incarnation, p_claim, t.namespace FROM tourbillon.timer t WHERE t.id = ANY (v_taken);
    RETURN QUERY SELECT v_now, NULL::uuid, NULL::bigint, NULL::bigint, NULL::text, NULL::text, NULL::text, NULL::text,
        NULL::bytea, NULL::text[], NULL::text, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint;
    RETURN QUERY SELECT v_now, t.id, t.due, t.created, t.phase::text, t.namespace, t.key, t.kind, t.payload,
            t.labels, t.reason, t.died, t.extra::text, l.until, l.incarnation, l.claim
        FROM unnest(v_taken) AS k (id),
            LATERAL (SELECT t.* FROM tourbillon.timer t WHERE t.id = k.id OFFSET 0) t,
            LATERAL (SELECT l.* FROM tourbillon.lease l WHERE l.id = k.id OFFSET 0) l
        ORDER BY t.due, t.id;
END $$;

-- Looks whether a node must claim, and leases nothing: returns the due moment of the first timer of its shards beyond
-- the marks, without the lanes that the last claim has withheld. Also returns whether a transaction has written a timer
-- before the marks since the snapshot, and the snapshot of this look.
CREATE FUNCTION tourbillon.peek(
    p_now bigint, p_node bigint, p_owned text, p_mark_due bigint, p_mark_id uuid, p_seen text, p_again uuid[],
    p_lanes smallint[], p_lane_dues bigint[], p_lane_ids uuid[], p_withheld smallint[]
) RETURNS TABLE (now bigint, is_same boolean, next_due bigint, has_late boolean, snapshot text, free bigint)
LANGUAGE plpgsql
-- Each statement finds its rows by indexes, also while the statistics are of a time when the tables were empty. For the
-- same reason a lease is looked up by a scalar subquery, which the planner cannot turn into a join.
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now CONSTANT bigint := coalesce(p_now, tourbillon.now_ms());
    v_shards smallint[]; v_owned text; v_next bigint; v_late boolean; v_snapshot pg_snapshot;
    v_seen CONSTANT pg_snapshot := p_seen::pg_snapshot;
    v_from_due bigint[] := array_fill(p_mark_due, ARRAY[64]); v_from_id uuid[] := array_fill(p_mark_id, ARRAY[64]);
    -- As in `claim`.
    v_fresh_most CONSTANT bigint := 20000;
BEGIN
    -- As in `claim`.
    PERFORM tourbillon.wait_at_most((SELECT n.ttl FROM tourbillon.node n WHERE n.incarnation = p_node));
    SELECT coalesce(array_agg(s.number), '{}') INTO v_shards FROM tourbillon.shard s WHERE s.owner = p_node;
    v_owned := tourbillon.owned_by(p_node);
    IF v_owned IS DISTINCT FROM p_owned OR v_seen IS NULL OR v_now < p_mark_due THEN
        RETURN QUERY SELECT v_now, false, NULL::bigint, false, NULL::text, NULL::bigint;
        RETURN;
    END IF;
    IF v_shards = '{}' THEN
        -- As in `claim`. `first_left` would find timers of other nodes alone, and name the last one that it has read.
        RETURN QUERY SELECT v_now, true, NULL::bigint, false, pg_current_snapshot()::text, tourbillon.free_number();
        RETURN;
    END IF;
    FOR i IN 1 .. cardinality(p_lanes) LOOP
        v_from_due[p_lanes[i] + 1] := p_lane_dues[i];
        v_from_id[p_lanes[i] + 1] := p_lane_ids[i];
    END LOOP;
    SELECT min(f.due) INTO v_next FROM generate_series(1, 64) AS n (number),
        LATERAL tourbillon.first_left(n.number - 1, v_from_due[n.number], v_from_id[n.number], v_shards, '{}') f
    WHERE n.number - 1 <> ALL (p_withheld);
    -- One statement looks for late timers and reads the snapshot, so that the next look can begin where this one ends.
    -- As in `claim`, it passes over open transactions.
    SELECT cardinality(p_again) > 0 OR count(*) > v_fresh_most OR coalesce(bool_or(
            f.shard = ANY (v_shards) AND (f.due, f.id) <= (v_from_due[f.lane + 1], v_from_id[f.lane + 1])
            AND (SELECT l.until FROM tourbillon.lease l WHERE l.id = f.id) IS NULL), false),
        pg_current_snapshot()
    INTO v_late, v_snapshot
    FROM (
        (SELECT f.* FROM pg_snapshot_xip(v_seen) AS x (xid), LATERAL (
            SELECT t.lane, t.due, t.id, t.shard FROM tourbillon.timer t
            WHERE t.phase = 'p' AND t.xid >= x.xid AND t.xid <= x.xid ORDER BY t.xid LIMIT v_fresh_most + 1
        ) f
        WHERE pg_visible_in_snapshot(x.xid, pg_current_snapshot())
        LIMIT v_fresh_most + 1)
        UNION ALL
        (SELECT t.lane, t.due, t.id, t.shard FROM tourbillon.timer t
        WHERE t.phase = 'p' AND t.xid >= pg_snapshot_xmax(v_seen)
            AND t.xid < pg_snapshot_xmax(pg_current_snapshot())
        ORDER BY t.xid LIMIT v_fresh_most + 1)
    ) f;
    RETURN QUERY SELECT v_now, true, v_next, v_late, v_snapshot::text, tourbillon.free_number();
END $$;

-- Counts pending timers by spans of due moments, and returns a row for each span. `p_ends` has the last moments of the
-- spans, in order. Reads `p_most` entries of the index at most, for all lanes and spans together. The spans come one
-- after the other, and each reads all lanes before the next begins. If the entries do not suffice for a span,
-- `is_exact` is false for that span and all later ones, and the numbers are lower bounds.
CREATE FUNCTION tourbillon.horizon(p_ends bigint[], p_most bigint) RETURNS TABLE (number bigint, is_exact boolean)
LANGUAGE plpgsql
-- As in `claim`.
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off AS $$
DECLARE v_after bigint := -1; v_until bigint; v_left bigint := p_most; v_read bigint;
BEGIN
    FOREACH v_until IN ARRAY p_ends LOOP
        number := 0;
        IF v_left > 0 THEN
            SELECT count(*) FILTER (WHERE e.is_pending), count(*) INTO number, v_read FROM (
                SELECT (SELECT l.until FROM tourbillon.lease l WHERE l.id = t.id) IS NULL AS is_pending
                FROM generate_series(0, 63) AS s (lane), LATERAL (
                    SELECT o.id FROM tourbillon.timer o
                    WHERE o.lane = s.lane AND o.phase = 'p' AND o.due > v_after AND o.due <= v_until
                    ORDER BY o.due, o.id LIMIT v_left
                ) t
                LIMIT v_left
            ) e;
            v_left := v_left - v_read;
        END IF;
        is_exact := v_left > 0;
        RETURN NEXT;
        v_after := v_until;
    END LOOP;
END $$;

-- Gives a sign of life of a node, and divides the shards: shard n belongs to the live node number n modulo their count,
-- in the order of their incarnations. A node that takes a shard over locks the row of the owner first, so that a claim
-- of the owner under way ends before.
--
-- Each node locks the row of `setting` for its signs of life. So a transaction that locks this row never waits for a
-- standby: while the standby is away, it would keep the lock, and no node could give a sign of life.
CREATE FUNCTION tourbillon.sign(
    p_now bigint, p_node bigint, p_name text, p_version text, p_ttl bigint, p_listens boolean DEFAULT false
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE v_now bigint; v_live bigint[]; v_mine smallint[]; v_dead bigint;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM tourbillon.wait_at_most(p_ttl);
    -- One node divides at a time.
    PERFORM 1 FROM tourbillon.setting s FOR UPDATE;
    v_now := coalesce(p_now, tourbillon.now_ms());
    INSERT INTO tourbillon.node AS n (incarnation, name, version, since, seen, ttl, listens)
    VALUES (p_node, p_name, p_version, v_now, v_now, p_ttl, p_listens)
    ON CONFLICT (incarnation) DO UPDATE SET seen = v_now, ttl = p_ttl, listens = p_listens;
    -- The row of a dead node is removed, which waits for a claim of it that is under way.
    FOR v_dead IN SELECT n.incarnation FROM tourbillon.node n WHERE n.seen + n.ttl <= v_now ORDER BY 1 LOOP
        DELETE FROM tourbillon.node n WHERE n.incarnation = v_dead;
    END LOOP;
    SELECT array_agg(n.incarnation ORDER BY n.incarnation) INTO v_live FROM tourbillon.node n;
    SELECT coalesce(array_agg(s.number), '{}') INTO v_mine FROM tourbillon.shard s
    WHERE v_live[1 + s.number % cardinality(v_live)] = p_node;
    UPDATE tourbillon.shard s SET owner = NULL WHERE s.owner = p_node AND s.number <> ALL (v_mine);
    UPDATE tourbillon.shard s SET owner = p_node, epoch = s.epoch + 1,
        takeovers = s.takeovers + CASE WHEN s.owner IS NULL THEN 0 ELSE 1 END,
        taken_over = CASE WHEN s.owner IS NULL THEN s.taken_over ELSE v_now END
    WHERE s.number = ANY (v_mine) AND (s.owner IS NULL OR s.owner <> ALL (v_live));
    -- Only a part: after an absence of all nodes there may be millions, and the other nodes wait for this lock. A
    -- caller's transaction may have locked a row, and wait for a standby.
    DELETE FROM tourbillon.remembered r WHERE r.id IN (
        SELECT o.id FROM tourbillon.remembered o WHERE o.until <= v_now LIMIT 20000 FOR UPDATE SKIP LOCKED);
    RETURN v_now;
END $$;

-- Gives a sign of life, and then looks as `peek` does. Also returns whether the changes of the numbers of timers are
-- worth a sum.
CREATE FUNCTION tourbillon.tick(
    p_now bigint, p_node bigint, p_owned text, p_mark_due bigint, p_mark_id uuid, p_seen text, p_again uuid[],
    p_lanes smallint[], p_lane_dues bigint[], p_lane_ids uuid[], p_withheld smallint[], p_name text, p_version text,
    p_ttl bigint, p_listens boolean
) RETURNS TABLE (
    now bigint, is_same boolean, next_due bigint, has_late boolean, snapshot text, free bigint, has_sums boolean
) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tourbillon.sign(p_now, p_node, p_name, p_version, p_ttl, p_listens);
    RETURN QUERY SELECT p.*, EXISTS (SELECT 1 FROM tourbillon.tally OFFSET 100)
        FROM tourbillon.peek(p_now, p_node, p_owned, p_mark_due, p_mark_id, p_seen, p_again, p_lanes, p_lane_dues,
            p_lane_ids, p_withheld) p;
END $$;

-- Removes a node, and frees its shards.
CREATE FUNCTION tourbillon.leave(p_node bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- As in `sign`.
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM tourbillon.wait_at_most((SELECT n.ttl FROM tourbillon.node n WHERE n.incarnation = p_node));
    PERFORM 1 FROM tourbillon.setting s FOR UPDATE;
    DELETE FROM tourbillon.node n WHERE n.incarnation = p_node;
    UPDATE tourbillon.shard s SET owner = NULL WHERE s.owner = p_node;
END $$;

-- Adds up the changes of the numbers of timers. Another transaction that does so at the same time is not waited for.
CREATE FUNCTION tourbillon.fold() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- As in `sign`. The sums are the same before and after.
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM 1 FROM tourbillon.setting s FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        -- Only a part, as in `sign`. The next sums follow soon.
        WITH gone AS (
            DELETE FROM tourbillon.tally t
            WHERE t.ctid = ANY (ARRAY(SELECT o.ctid FROM tourbillon.tally o LIMIT 100000)) RETURNING *
        )
        INSERT INTO tourbillon.tally
        SELECT g.namespace, g.phase, sum(g.number) FROM gone g GROUP BY 1, 2 HAVING sum(g.number) <> 0;
    END IF;
END $$;

-- Replaces a document if its row has the version `p_version`; 0 stands for a name without a row. `p_fresh` is the new
-- version. Without a value, removes the document, and its row stays. So a second run of a statement finds another
-- version than the first, whatever has happened to the document between them. `version_after` is the version that the
-- row has afterwards, and `exists_after` says whether the document exists.
CREATE FUNCTION tourbillon.replace_document(
    p_name text, p_version bigint, p_value bytea, p_fresh bigint,
    OUT is_replaced boolean, OUT version_after bigint, OUT exists_after boolean
) LANGUAGE plpgsql AS $$
BEGIN
    IF p_version <> 0 THEN
        UPDATE tourbillon.document d SET version = p_fresh, value = p_value
        WHERE d.name = p_name AND d.version = p_version;
    ELSE
        INSERT INTO tourbillon.document (name, version, value) VALUES (p_name, p_fresh, p_value)
        ON CONFLICT (name) DO NOTHING;
    END IF;
    is_replaced := FOUND;
    IF NOT is_replaced THEN
        -- An earlier run has made this change, and its wait for a synchronous standby was perhaps given up. A
        -- transaction that writes nothing waits for no standby, so this one writes the version again.
        UPDATE tourbillon.document d SET version = p_fresh WHERE d.name = p_name AND d.version = p_fresh;
    END IF;
    -- A statement of its own sees the commit for which the statement above has waited.
    SELECT d.version, d.value IS NOT NULL INTO version_after, exists_after
    FROM tourbillon.document d WHERE d.name = p_name;
    version_after := coalesce(version_after, 0);
    exists_after := coalesce(exists_after, false);
END $$;

-- Callers run the functions of `0001_calls.sql` alone.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA tourbillon FROM PUBLIC;
DO $$
DECLARE v_function regprocedure;
BEGIN
    FOR v_function IN
        SELECT p.oid::regprocedure FROM pg_proc p
        WHERE p.pronamespace = 'tourbillon'::regnamespace AND p.proname IN
            ('place', 'schedule', 'schedule_callback', 'schedule_queue', 'cancel', 'move_to', 'look', 'done',
                'own_namespace')
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO PUBLIC', v_function);
    END LOOP;
END $$;
