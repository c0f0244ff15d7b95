-- Migration 1, third part: the functions of the store. Callers have no right to them. `p_now` is the time of a test
-- clock; NULL means the time of this server.

-- The timers with their leases, as the store reads them.
CREATE VIEW tourbillon.stored_timer AS
    SELECT t.id, t.due, t.created, t.phase::text AS phase, t.namespace, t.key, t.kind, t.payload, t.labels, t.reason,
        t.died, t.extra::text AS extra, l.until, l.incarnation, l.claim, t.shard
    FROM tourbillon.timer t LEFT JOIN tourbillon.lease l ON l.id = t.id;

-- Stores new timers whose ids and keys differ from each other. Returns the ids of those that are stored now. The others
-- have an id or a key that is taken, or an id that is remembered. The third statement sees the ends of timers that the
-- first statement waited for.
CREATE FUNCTION tourbillon.place_many(
    p_now bigint, p_ids uuid[], p_dues bigint[], p_namespaces text[], p_keys text[], p_kinds text[],
    p_payloads bytea[], p_labels text[], p_phases text[], p_reasons text[], p_extras text[], p_sync boolean
) RETURNS SETOF uuid LANGUAGE plpgsql AS $$
DECLARE v_now CONSTANT bigint := coalesce(p_now, tourbillon.now_ms()); v_made uuid[]; v_old uuid[];
BEGIN
    IF NOT p_sync THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    WITH made AS (
        INSERT INTO tourbillon.timer
            (id, due, created, xid, shard, phase, namespace, key, kind, payload, labels, reason, extra)
        SELECT n.id, n.due, v_now, tourbillon.xid_for(n.due, v_now), tourbillon.shard_of(n.id), n.phase::"char",
            n.namespace, n.key, n.kind, n.payload,
            CASE WHEN n.labels IS NOT NULL THEN ARRAY(SELECT jsonb_array_elements_text(n.labels::jsonb)) END,
            n.reason, n.extra::jsonb
        FROM unnest(p_ids, p_dues, p_namespaces, p_keys, p_kinds, p_payloads, p_labels, p_phases, p_reasons, p_extras)
            AS n (id, due, namespace, key, kind, payload, labels, phase, reason, extra)
        WHERE n.extra IS NULL OR NOT EXISTS (
            SELECT 1 FROM tourbillon.remembered r WHERE r.id = n.id AND r.until > v_now)
        ON CONFLICT DO NOTHING RETURNING timer.id, timer.extra
    )
    SELECT array_agg(m.id), array_agg(m.id) FILTER (WHERE m.extra ? 'chosen') INTO v_made, v_old FROM made m;
    IF v_old IS NOT NULL THEN
        SELECT array_agg(r.id) INTO v_old FROM tourbillon.remembered r WHERE r.id = ANY (v_old) AND r.until > v_now;
        IF v_old IS NOT NULL THEN
            DELETE FROM tourbillon.timer t WHERE t.id = ANY (v_old);
        END IF;
    END IF;
    IF (SELECT s.notify FROM tourbillon.setting s)
        AND EXISTS (SELECT 1 FROM unnest(p_dues, p_phases) AS n (due, phase) WHERE n.due < v_now + 250 AND n.phase = 'p')
    THEN
        PERFORM pg_notify('tourbillon', '');
    END IF;
    RETURN QUERY SELECT m FROM unnest(v_made) m WHERE v_old IS NULL OR m <> ALL (v_old);
END $$;

-- Ends deliveries whose timers leave nothing behind: no next occurrence of a series follows. Returns the ids of the
-- timers that are gone. The lease is deleted first: whoever deletes it ends the delivery. A reap that holds the timer
-- passes over the lease, and a withdrawal that holds the timer is waited for.
CREATE FUNCTION tourbillon.end_many(
    p_now bigint, p_ids uuid[], p_incarnations bigint[], p_claims bigint[], p_sync boolean
) RETURNS SETOF uuid LANGUAGE plpgsql
-- Each statement finds its rows by indexes, also while the statistics are of a time when the tables were empty.
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off AS $$
DECLARE v_now CONSTANT bigint := coalesce(p_now, tourbillon.now_ms()); v_held uuid[]; v_ids uuid[];
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
        DELETE FROM tourbillon.timer t WHERE t.id = ANY (v_held) RETURNING t.id, t.extra
    ), kept AS (
        INSERT INTO tourbillon.remembered AS r (id, until)
        SELECT g.id, v_now + 3600000 FROM gone g WHERE g.extra ? 'chosen'
        ON CONFLICT (id) DO UPDATE SET until = excluded.until
    )
    SELECT array_agg(g.id) INTO v_ids FROM gone g;
    RETURN QUERY SELECT i FROM unnest(v_ids) i;
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

-- Leases due timers in the shards of a node.
--
-- The node's row is locked first: a node that takes shards over locks it, too. So the shards that the next statement
-- reads are this node's until this transaction ends. `p_mark_due` and `p_mark_id` are the low-water mark: all timers up
-- to it that were visible in the snapshot `p_seen` are leased, or are among `p_again`. The second look finds those that
-- were written by transactions which that snapshot did not show. The mark holds for the shards `p_owned` only.
--
-- The first row has `head`, in JSON; the others are the leased timers in the order of their due moments.
CREATE FUNCTION tourbillon.claim(
    p_now bigint, p_node bigint, p_incarnation bigint, p_claim bigint, p_lease bigint, p_timers bigint,
    p_bytes bigint, p_owned text, p_mark_due bigint, p_mark_id uuid, p_seen text, p_again uuid[]
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
    v_now bigint; v_node bigint;
    v_shards smallint[]; v_owned text; v_snapshot pg_snapshot; v_seen pg_snapshot := p_seen::pg_snapshot;
    v_mark_due bigint := p_mark_due; v_mark_id uuid := p_mark_id;
    v_found uuid[]; v_dues bigint[]; v_late bigint; v_taken uuid[]; v_held uuid[]; v_left bigint;
    v_next bigint; v_next_late bigint;
    v_each bigint; v_is_cut boolean; v_early bigint;
    v_nil CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
BEGIN
    -- A lease need not survive a crash of the server: the timer is then claimed again.
    PERFORM set_config('synchronous_commit', 'off', true);
    SELECT n.incarnation INTO v_node FROM tourbillon.node n WHERE n.incarnation = p_node FOR SHARE;
    v_now := coalesce(p_now, tourbillon.now_ms());
    IF v_node IS NULL THEN
        head := json_build_object('now', v_now, 'gone', true);
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT coalesce(array_agg(s.number), '{}') INTO v_shards FROM tourbillon.shard s WHERE s.owner = p_node;
    v_owned := tourbillon.owned_by(p_node);
    IF v_owned IS DISTINCT FROM p_owned OR v_now < v_mark_due OR v_seen IS NULL THEN
        -- Shards have come or gone, or the clock went back: begin at the first timer.
        v_mark_due := -1;
        v_mark_id := v_nil;
        v_seen := NULL;
    END IF;
    -- Each shard names twice its even part of the claim. The timers up to the last one of the shard that is cut first
    -- are in order, and no other timer comes between. If they do not suffice, each shard names more.
    v_each := least(2 * p_timers / greatest(cardinality(v_shards), 1) + 8, p_timers + 1);
    LOOP
    -- One statement chooses, so the snapshot is that by which the timers were chosen.
    WITH late AS (
        SELECT t.due, t.id, t.payload FROM tourbillon.timer t
        WHERE v_seen IS NOT NULL AND t.phase = 'p' AND t.xid IS NOT NULL AND t.shard = ANY (v_shards)
            AND t.xid = ANY (ARRAY(SELECT pg_snapshot_xip(v_seen)))
            AND (t.due, t.id) <= (v_mark_due, v_mark_id)
        UNION ALL
        SELECT t.due, t.id, t.payload FROM tourbillon.timer t
        WHERE v_seen IS NOT NULL AND t.phase = 'p' AND t.xid >= pg_snapshot_xmax(v_seen) AND t.shard = ANY (v_shards)
            AND (t.due, t.id) <= (v_mark_due, v_mark_id)
        UNION ALL
        SELECT t.due, t.id, t.payload FROM tourbillon.timer t
        WHERE t.id = ANY (p_again) AND t.phase = 'p' AND t.shard = ANY (v_shards) AND t.due <= v_now
            AND (t.due, t.id) <= (v_mark_due, v_mark_id)
    ), late_free AS (
        SELECT DISTINCT e.due, e.id, octet_length(e.payload) AS bytes FROM late e
        WHERE (SELECT l.until FROM tourbillon.lease l WHERE l.id = e.id) IS NULL
        ORDER BY e.due, e.id LIMIT p_timers + 1
    ), first AS (
        SELECT s.number, c.due, c.id, c.bytes, row_number() OVER (PARTITION BY s.number ORDER BY c.due, c.id) AS nth
        FROM unnest(v_shards) AS s (number), LATERAL (
            SELECT t.due, t.id, octet_length(t.payload) AS bytes FROM tourbillon.timer t
            WHERE t.shard = s.number AND t.phase = 'p' AND t.due <= v_now
                AND (t.due, t.id) > (v_mark_due, v_mark_id)
                AND (SELECT l.until FROM tourbillon.lease l WHERE l.id = t.id) IS NULL
            ORDER BY t.due, t.id LIMIT v_each) c
    ), bound AS (
        SELECT f.due, f.id FROM first f WHERE f.nth = v_each ORDER BY f.due, f.id LIMIT 1
    ), early AS (
        SELECT f.due, f.id, f.bytes FROM first f
        WHERE NOT EXISTS (SELECT 1 FROM bound) OR (f.due, f.id) <= (SELECT b.due, b.id FROM bound b)
        ORDER BY f.due, f.id LIMIT p_timers + 1
    ), chosen AS (
        SELECT e.due, e.id, e.bytes, true AS is_late FROM late_free e
        UNION ALL SELECT e.due, e.id, e.bytes, false FROM early e
    ), counted AS (
        SELECT c.due, c.id, c.is_late, row_number() OVER w AS nth,
            coalesce(sum(c.bytes) OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
        FROM chosen c WINDOW w AS (ORDER BY c.due, c.id)
    ), fit AS (
        SELECT c.*, c.nth <= p_timers AND (c.before = 0 OR c.before < p_bytes) AS fits FROM counted c
    )
    SELECT array_agg(f.id ORDER BY f.nth) FILTER (WHERE f.fits),
        array_agg(f.due ORDER BY f.nth) FILTER (WHERE f.fits), count(*) FILTER (WHERE NOT f.fits AND f.is_late),
        min(f.due) FILTER (WHERE NOT f.fits AND f.is_late), count(*) FILTER (WHERE NOT f.fits), pg_current_snapshot(),
        EXISTS (SELECT 1 FROM bound), (SELECT count(*) FROM early)
    INTO v_found, v_dues, v_late, v_next_late, v_left, v_snapshot, v_is_cut, v_early FROM fit f;
    EXIT WHEN NOT v_is_cut OR v_early > p_timers OR v_each > p_timers;
    v_each := v_each * 8;
    END LOOP;

    v_found := coalesce(v_found, '{}');
    -- The timers are locked. Those that another transaction holds are passed over, and asked for again by their ids.
    WITH locked AS (
        SELECT t.id, t.phase = 'p' AND t.due <= v_now AS fits FROM tourbillon.timer t WHERE t.id = ANY (v_found)
        FOR UPDATE SKIP LOCKED
    ) SELECT coalesce(array_agg(k.id) FILTER (WHERE k.fits), '{}') INTO v_taken FROM locked k;
    -- A timer that was moved or removed while it was chosen is found by its new transaction, or is gone.
    SELECT coalesce(array_agg(DISTINCT h.id), '{}') INTO v_held
    FROM unnest(v_found || p_again) AS h (id) WHERE h.id <> ALL (v_taken)
        AND EXISTS (SELECT 1 FROM tourbillon.timer t WHERE t.id = h.id AND t.phase = 'p')
        AND (SELECT l.until FROM tourbillon.lease l WHERE l.id = h.id) IS NULL;
    INSERT INTO tourbillon.lease (id, until, incarnation, claim, namespace)
    SELECT t.id, v_now + p_lease, p_incarnation, p_claim, t.namespace
    FROM tourbillon.timer t WHERE t.id = ANY (v_taken) ON CONFLICT (id) DO NOTHING;
    -- The new mark: the last timer that was chosen, or the present moment if no due timer is left.
    IF v_late > 0 THEN
        -- Late timers are left: the next look begins where this one began.
        v_snapshot := v_seen;
    ELSIF v_left = 0 THEN
        v_mark_due := v_now;
        v_mark_id := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
    ELSIF v_found <> '{}' AND (v_dues[cardinality(v_dues)], v_found[cardinality(v_found)])
        > (v_mark_due, v_mark_id) THEN
        v_mark_due := v_dues[cardinality(v_dues)];
        v_mark_id := v_found[cardinality(v_found)];
    END IF;
    SELECT min(c.due) INTO v_next FROM unnest(v_shards) AS s (number), LATERAL (
        SELECT t.due FROM tourbillon.timer t
        WHERE t.shard = s.number AND t.phase = 'p' AND (t.due, t.id) > (v_mark_due, v_mark_id)
            AND (SELECT l.until FROM tourbillon.lease l WHERE l.id = t.id) IS NULL
            AND t.id <> ALL (v_held)
        ORDER BY t.due, t.id LIMIT 1) c;
    v_next := least(v_next, v_next_late);
    head := json_build_object('now', v_now, 'gone', false, 'owned', v_owned, 'mark_due', v_mark_due,
        'mark_id', v_mark_id, 'seen', v_snapshot::text, 'held', v_held, 'next', v_next);
    RETURN NEXT;
    RETURN QUERY SELECT NULL::text, t.id, t.due, t.created, t.phase::text, t.namespace, t.key, t.kind, t.payload,
            t.labels, t.reason, t.died, t.extra::text, l.until, l.incarnation, l.claim
        FROM unnest(v_taken) AS k (id),
            LATERAL (SELECT t.* FROM tourbillon.timer t WHERE t.id = k.id OFFSET 0) t,
            LATERAL (SELECT l.* FROM tourbillon.lease l WHERE l.id = k.id OFFSET 0) l
        WHERE l.incarnation = p_incarnation AND l.claim = p_claim ORDER BY t.due, t.id;
END $$;

-- Looks whether a node must claim, and leases nothing: returns the due moment of the first timer of its shards beyond
-- the mark, and whether a transaction has written a timer before the mark since the snapshot. Also returns the snapshot
-- of this look.
CREATE FUNCTION tourbillon.peek(
    p_now bigint, p_node bigint, p_owned text, p_mark_due bigint, p_mark_id uuid, p_seen text, p_again uuid[]
) RETURNS TABLE (now bigint, is_same boolean, next_due bigint, has_late boolean, snapshot text) LANGUAGE plpgsql
-- Each statement finds its rows by indexes, also while the statistics are of a time when the tables were empty. For the
-- same reason a lease is looked up by a scalar subquery, which the planner cannot turn into a join.
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now CONSTANT bigint := coalesce(p_now, tourbillon.now_ms());
    v_shards smallint[]; v_owned text; v_next bigint; v_late boolean;
    v_seen CONSTANT pg_snapshot := p_seen::pg_snapshot;
BEGIN
    SELECT coalesce(array_agg(s.number), '{}') INTO v_shards FROM tourbillon.shard s WHERE s.owner = p_node;
    v_owned := tourbillon.owned_by(p_node);
    IF v_owned IS DISTINCT FROM p_owned OR v_seen IS NULL OR v_now < p_mark_due THEN
        RETURN QUERY SELECT v_now, false, NULL::bigint, false, NULL::text;
        RETURN;
    END IF;
    SELECT min(c.due) INTO v_next FROM unnest(v_shards) AS s (number), LATERAL (
        SELECT t.due FROM tourbillon.timer t
        WHERE t.shard = s.number AND t.phase = 'p' AND (t.due, t.id) > (p_mark_due, p_mark_id)
            AND (SELECT l.until FROM tourbillon.lease l WHERE l.id = t.id) IS NULL
        ORDER BY t.due, t.id LIMIT 1) c;
    v_late := cardinality(p_again) > 0 OR EXISTS (
        SELECT 1 FROM tourbillon.timer t WHERE t.phase = 'p' AND t.xid IS NOT NULL AND t.shard = ANY (v_shards)
            AND t.xid = ANY (ARRAY(SELECT pg_snapshot_xip(v_seen))) AND (t.due, t.id) <= (p_mark_due, p_mark_id)
            AND (SELECT l.until FROM tourbillon.lease l WHERE l.id = t.id) IS NULL
    ) OR EXISTS (
        SELECT 1 FROM tourbillon.timer t WHERE t.phase = 'p' AND t.xid >= pg_snapshot_xmax(v_seen)
            AND t.shard = ANY (v_shards) AND (t.due, t.id) <= (p_mark_due, p_mark_id)
            AND (SELECT l.until FROM tourbillon.lease l WHERE l.id = t.id) IS NULL);
    RETURN QUERY SELECT v_now, true, v_next, v_late, pg_current_snapshot()::text;
END $$;

-- Gives a sign of life of a node, and divides the shards: shard n belongs to the live node number n modulo their count,
-- in the order of their incarnations. A node that takes a shard over locks the row of the owner first, so that a claim
-- of the owner under way ends before.
CREATE FUNCTION tourbillon.sign(p_now bigint, p_node bigint, p_name text, p_version text, p_ttl bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE v_now bigint; v_live bigint[]; v_mine smallint[]; v_dead bigint;
BEGIN
    -- One node divides at a time.
    PERFORM 1 FROM tourbillon.setting s FOR UPDATE;
    v_now := coalesce(p_now, tourbillon.now_ms());
    INSERT INTO tourbillon.node AS n (incarnation, name, version, since, seen, ttl)
    VALUES (p_node, p_name, p_version, v_now, v_now, p_ttl)
    ON CONFLICT (incarnation) DO UPDATE SET seen = v_now, ttl = p_ttl;
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
    DELETE FROM tourbillon.remembered r WHERE r.until <= v_now;
    RETURN v_now;
END $$;

-- Gives a sign of life, and then looks as `peek` does. Also returns whether the changes of the numbers of timers are
-- worth a sum.
CREATE FUNCTION tourbillon.tick(
    p_now bigint, p_node bigint, p_owned text, p_mark_due bigint, p_mark_id uuid, p_seen text, p_again uuid[],
    p_name text, p_version text, p_ttl bigint
) RETURNS TABLE (
    now bigint, is_same boolean, next_due bigint, has_late boolean, snapshot text, has_sums boolean
) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tourbillon.sign(p_now, p_node, p_name, p_version, p_ttl);
    RETURN QUERY SELECT p.*, EXISTS (SELECT 1 FROM tourbillon.tally OFFSET 100)
        FROM tourbillon.peek(p_now, p_node, p_owned, p_mark_due, p_mark_id, p_seen, p_again) p;
END $$;

-- Removes a node, and frees its shards.
CREATE FUNCTION tourbillon.leave(p_node bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM tourbillon.setting s FOR UPDATE;
    DELETE FROM tourbillon.node n WHERE n.incarnation = p_node;
    UPDATE tourbillon.shard s SET owner = NULL WHERE s.owner = p_node;
END $$;

-- Adds up the changes of the numbers of timers. Another transaction that does so at the same time is not waited for.
CREATE FUNCTION tourbillon.fold() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM tourbillon.setting s FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        WITH gone AS (DELETE FROM tourbillon.tally RETURNING *)
        INSERT INTO tourbillon.tally
        SELECT g.namespace, g.phase, sum(g.number) FROM gone g GROUP BY 1, 2 HAVING sum(g.number) <> 0;
    END IF;
END $$;

-- Replaces a document if it has the version `p_version`; 0 stands for a document that does not exist. `p_fresh` is the new
-- version. Without a value, removes the document. `version_after` is the version that the document has afterwards.
CREATE FUNCTION tourbillon.replace_document(
    p_name text, p_version bigint, p_value bytea, p_fresh bigint, OUT is_replaced boolean, OUT version_after bigint
) LANGUAGE plpgsql AS $$
BEGIN
    IF p_version <> 0 AND p_value IS NOT NULL THEN
        UPDATE tourbillon.document d SET version = p_fresh, value = p_value
        WHERE d.name = p_name AND d.version = p_version;
        is_replaced := FOUND;
    ELSIF p_version <> 0 THEN
        DELETE FROM tourbillon.document d WHERE d.name = p_name AND d.version = p_version;
        is_replaced := FOUND;
    ELSIF p_value IS NOT NULL THEN
        INSERT INTO tourbillon.document (name, version, value) VALUES (p_name, p_fresh, p_value)
        ON CONFLICT (name) DO NOTHING;
        is_replaced := FOUND;
    END IF;
    -- A statement of its own sees the commit for which the statement above has waited.
    SELECT d.version INTO version_after FROM tourbillon.document d WHERE d.name = p_name;
    version_after := coalesce(version_after, 0);
    is_replaced := coalesce(is_replaced, version_after = 0);
END $$;

-- Callers run the functions of `0001_calls.sql` alone.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA tourbillon FROM PUBLIC;
DO $$
DECLARE v_function regprocedure;
BEGIN
    FOR v_function IN
        SELECT p.oid::regprocedure FROM pg_proc p
        WHERE p.pronamespace = 'tourbillon'::regnamespace AND p.proname IN
            ('place', 'schedule', 'schedule_callback', 'schedule_queue', 'cancel', 'move_to', 'look', 'done')
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO PUBLIC', v_function);
    END LOOP;
END $$;
