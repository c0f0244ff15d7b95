-- Migration 1, first part: the tables, and what the functions of the other parts share. DESIGN.md describes them.
--
-- Moments are milliseconds since 1970, as in the records of the other stores. The name of the schema is replaced when
-- the migration runs. A caller needs `GRANT USAGE ON SCHEMA tourbillon`, and no right on a table.

-- The settings of the deployment: one row.
CREATE TABLE tourbillon.setting (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    -- Whether the stores decide by a clock of their callers, for tests.
    test_clock boolean NOT NULL DEFAULT false,
    -- Whether the service `tourbillond` delivers the timers. Otherwise programs with handlers of their own do.
    service boolean NOT NULL DEFAULT false
);
INSERT INTO tourbillon.setting DEFAULT VALUES;

-- The timers. A claim never changes a row: it adds a lease.
CREATE TABLE tourbillon.timer (
    id uuid PRIMARY KEY,
    due bigint NOT NULL,
    created bigint NOT NULL,
    -- The transaction that last wrote the row. NULL if the timer was due in more than an hour at that moment.
    xid xid8,
    -- The last four bits of the id.
    shard smallint NOT NULL,
    -- The group of namespaces by which a claim passes over a namespace that has its share.
    lane smallint NOT NULL GENERATED ALWAYS AS (((hashtext(namespace) >> 16) & 63)::smallint) STORED,
    -- p: pending, or leased if it has a lease; c, r: cancelled or replaced during its lease; k: parked; d: dead.
    phase "char" NOT NULL DEFAULT 'p' CHECK (phase IN ('p', 'c', 'r', 'k', 'd')),
    namespace text COLLATE "C" NOT NULL,
    key text COLLATE "C",
    kind text COLLATE "C" NOT NULL,
    payload bytea NOT NULL,
    labels text[] COLLATE "C",
    -- The reason why the timer is parked or dead.
    reason text COLLATE "C",
    -- The moment of death.
    died bigint,
    -- The fields that have their defaults in most timers: scheduled, deliveries, failures, last_error, policy, series,
    -- trace, chosen, age_from.
    extra jsonb
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

CREATE UNIQUE INDEX timer_key ON tourbillon.timer (namespace, key) WHERE key IS NOT NULL AND phase IN ('p', 'k');
CREATE INDEX timer_due ON tourbillon.timer (lane, due, id) WHERE phase = 'p';
CREATE INDEX timer_xid ON tourbillon.timer (xid) WHERE xid IS NOT NULL AND phase = 'p';
CREATE INDEX timer_parked ON tourbillon.timer (reason, due, id) WHERE phase = 'k';
CREATE INDEX timer_dead ON tourbillon.timer (died, id) WHERE phase = 'd';
CREATE INDEX timer_label ON tourbillon.timer USING gin (labels) WHERE labels IS NOT NULL;

-- The leases: a row from a claim to the end of its delivery. They are few, so a reap reads them all.
CREATE TABLE tourbillon.lease (
    id uuid PRIMARY KEY,
    until bigint NOT NULL,
    incarnation bigint NOT NULL,
    claim bigint NOT NULL,
    namespace text COLLATE "C" NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- The ids that callers chose, for an hour after the end of their timers.
CREATE TABLE tourbillon.remembered (id uuid PRIMARY KEY, until bigint NOT NULL);
CREATE INDEX remembered_until ON tourbillon.remembered (until);

-- The changes of the numbers of timers by namespace and phase (p stands for p, c and r). Their sums are the numbers.
CREATE TABLE tourbillon.tally (
    namespace text COLLATE "C" NOT NULL,
    phase "char" NOT NULL,
    number bigint NOT NULL
);
-- A publication of all tables makes each delete fail in a table that has neither a key nor this identity.
ALTER TABLE tourbillon.tally REPLICA IDENTITY FULL;

-- The nodes: processes that claim.
CREATE TABLE tourbillon.node (
    incarnation bigint PRIMARY KEY,
    name text NOT NULL,
    version text NOT NULL,
    since bigint NOT NULL,
    seen bigint NOT NULL,
    ttl bigint NOT NULL,
    -- Whether the node listens for notifications.
    listens boolean NOT NULL
);

-- The shards, and the nodes that look for due timers in them.
CREATE TABLE tourbillon.shard (
    number smallint PRIMARY KEY,
    owner bigint,
    epoch bigint NOT NULL DEFAULT 0,
    takeovers bigint NOT NULL DEFAULT 0,
    taken_over bigint
);
INSERT INTO tourbillon.shard (number) SELECT generate_series(0, 15);

-- Documents that the processes share: small values, each with a version. Versions are drawn at random, because a
-- counter would step back in a failover that loses the last commits. A document that was removed keeps its row, without
-- a value and with the version of its removal. So a name that is free again differs from a name that was always free.
CREATE TABLE tourbillon.document (
    name text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    value bytea
);

-- The lifetime of the server's memory: one row. An unlogged table is empty after a crash, and after a failover. Then
-- leases and transaction ids may be lost that nobody waited for, and the marks of all nodes start again.
CREATE UNLOGGED TABLE tourbillon.lifetime (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    id uuid NOT NULL DEFAULT gen_random_uuid()
);

-- The time of this server.
CREATE FUNCTION tourbillon.now_ms() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE AS
$$ SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

CREATE FUNCTION tourbillon.shard_of(p_id uuid) RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$ SELECT (get_byte(uuid_send(p_id), 15) & 15)::smallint $$;

-- The lane of a namespace, as the column `timer.lane` has it.
CREATE FUNCTION tourbillon.lane_of(p_namespace text) RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$ SELECT ((hashtext(p_namespace) >> 16) & 63)::smallint $$;

-- The value of `timer.xid` for a row that this transaction writes. The call may have waited for a lock since `p_now`.
CREATE FUNCTION tourbillon.xid_for(p_due bigint, p_now bigint) RETURNS xid8 LANGUAGE sql VOLATILE AS
$$ SELECT CASE WHEN p_due < greatest(p_now, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) + 3600000
    THEN pg_current_xact_id() END $$;

-- Keeps the numbers of timers, whoever writes.
CREATE FUNCTION tourbillon.count_timers() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO tourbillon.tally
        SELECT n.namespace, CASE WHEN n.phase IN ('c', 'r') THEN 'p' ELSE n.phase END, count(*)
        FROM new_rows n GROUP BY 1, 2;
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO tourbillon.tally
        SELECT o.namespace, CASE WHEN o.phase IN ('c', 'r') THEN 'p' ELSE o.phase END, -count(*)
        FROM old_rows o GROUP BY 1, 2;
    ELSE
        INSERT INTO tourbillon.tally
        SELECT w.namespace, w.phase, sum(w.number) FROM (
            SELECT n.namespace, CASE WHEN n.phase IN ('c', 'r') THEN 'p' ELSE n.phase END AS phase, 1 AS number
            FROM new_rows n
            UNION ALL
            SELECT o.namespace, CASE WHEN o.phase IN ('c', 'r') THEN 'p' ELSE o.phase END, -1 FROM old_rows o
        ) w GROUP BY 1, 2 HAVING sum(w.number) <> 0;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER count_inserted AFTER INSERT ON tourbillon.timer
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION tourbillon.count_timers();
CREATE TRIGGER count_updated AFTER UPDATE ON tourbillon.timer
    REFERENCING NEW TABLE AS new_rows OLD TABLE AS old_rows FOR EACH STATEMENT
    EXECUTE FUNCTION tourbillon.count_timers();
CREATE TRIGGER count_deleted AFTER DELETE ON tourbillon.timer
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION tourbillon.count_timers();

-- Locks the timer at an address, and returns its id. The second statement of a turn sees a timer that took the key
-- while the first statement waited.
CREATE FUNCTION tourbillon.lock_at(p_id uuid, p_namespace text, p_key text) RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE v_id uuid;
BEGIN
    IF p_id IS NOT NULL THEN
        SELECT t.id INTO v_id FROM tourbillon.timer t WHERE t.id = p_id FOR UPDATE;
        RETURN v_id;
    END IF;
    FOR turn IN 1 .. 100 LOOP
        SELECT t.id INTO v_id FROM tourbillon.timer t
        WHERE t.namespace = p_namespace AND t.key = p_key AND t.phase IN ('p', 'k') FOR UPDATE;
        IF FOUND THEN
            RETURN v_id;
        END IF;
        PERFORM 1 FROM tourbillon.timer t
        WHERE t.namespace = p_namespace AND t.key = p_key AND t.phase IN ('p', 'k');
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
    END LOOP;
    RAISE EXCEPTION 'other transactions kept replacing the timer with the key %', p_key USING ERRCODE = '40001';
END $$;

-- Removes a locked timer that has ended, and remembers its id if the caller chose the id.
CREATE FUNCTION tourbillon.remove_locked(p_id uuid, p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM tourbillon.lease l WHERE l.id = p_id;
    WITH gone AS (DELETE FROM tourbillon.timer t WHERE t.id = p_id RETURNING t.id, t.extra)
    INSERT INTO tourbillon.remembered AS r (id, until)
    SELECT g.id, p_now + 3600000 FROM gone g WHERE g.extra ? 'chosen'
    ON CONFLICT (id) DO UPDATE SET until = excluded.until;
END $$;

-- Returns whether the statements of this transaction have one snapshot. Then a row that was committed after the first
-- of them is hidden from all.
CREATE FUNCTION tourbillon.has_one_snapshot() RETURNS boolean LANGUAGE sql STABLE AS
$$ SELECT current_setting('transaction_isolation') IN ('repeatable read', 'serializable') $$;

-- Raises 40001 if a locked timer has a lease that is hidden from this transaction. A row with the timer's id is
-- inserted and deleted: PostgreSQL raises 40001 if a hidden row is in its way.
CREATE FUNCTION tourbillon.check_no_hidden_lease(p_id uuid) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_rows bigint;
BEGIN
    IF tourbillon.has_one_snapshot() THEN
        INSERT INTO tourbillon.lease (id, until, incarnation, claim, namespace) VALUES (p_id, 0, 0, 0, '')
        ON CONFLICT (id) DO NOTHING;
        GET DIAGNOSTICS v_rows = ROW_COUNT;
        IF v_rows = 1 THEN
            DELETE FROM tourbillon.lease l WHERE l.id = p_id;
        END IF;
    END IF;
END $$;

-- Returns whether a locked timer has a lease. The lease is looked for by a statement of its own, after the lock is
-- held. A visible lease is there still: whoever deletes a lease writes or deletes the timer, too.
CREATE FUNCTION tourbillon.is_leased(p_id uuid) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM tourbillon.lease l WHERE l.id = p_id;
    IF FOUND THEN
        RETURN true;
    END IF;
    PERFORM tourbillon.check_no_hidden_lease(p_id);
    RETURN false;
END $$;

-- Raises 40001 if the id of a timer that this transaction has inserted is remembered. The timer was created and ended
-- by others, after this transaction has looked for the id.
CREATE FUNCTION tourbillon.check_not_remembered(p_id uuid, p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_rows bigint;
BEGIN
    IF tourbillon.has_one_snapshot() THEN
        INSERT INTO tourbillon.remembered (id, until) VALUES (p_id, 0) ON CONFLICT (id) DO NOTHING;
        GET DIAGNOSTICS v_rows = ROW_COUNT;
        IF v_rows = 1 THEN
            DELETE FROM tourbillon.remembered r WHERE r.id = p_id;
        END IF;
        RETURN;
    END IF;
    PERFORM 1 FROM tourbillon.remembered r WHERE r.id = p_id AND r.until > p_now;
    IF FOUND THEN
        RAISE EXCEPTION 'others have stored and ended a timer with the id %', p_id USING ERRCODE = '40001';
    END IF;
END $$;

-- Withdraws a locked timer: removes it, or marks it if a delivery has begun. `p_mark` is c (cancelled) or r (replaced).
-- Returns whether a delivery has begun.
CREATE FUNCTION tourbillon.withdraw_locked(p_id uuid, p_mark "char", p_now bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    IF tourbillon.is_leased(p_id) THEN
        UPDATE tourbillon.timer t SET phase = p_mark WHERE t.id = p_id;
        RETURN true;
    END IF;
    PERFORM tourbillon.remove_locked(p_id, p_now);
    RETURN false;
END $$;

-- Returns the word for the phase of a locked timer.
CREATE FUNCTION tourbillon.phase_of_locked(p_id uuid) RETURNS text LANGUAGE sql AS $$
    SELECT CASE
        WHEN tourbillon.is_leased(t.id) THEN 'leased'
        WHEN t.phase = 'k' THEN 'parked' WHEN t.phase = 'd' THEN 'dead' ELSE 'pending' END
    FROM tourbillon.timer t WHERE t.id = p_id
$$;

-- Returns an id (UUID version 7) that no other call returns.
CREATE FUNCTION tourbillon.fresh_id() RETURNS uuid LANGUAGE sql VOLATILE AS $$
    SELECT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
        PLACING substring(int8send(tourbillon.now_ms()) FROM 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid
$$;

-- A length as postcard writes it: seven bits in a byte, the lowest first.
CREATE FUNCTION tourbillon.varint(p_number bigint) RETURNS bytea LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE v_rest bigint := p_number; v_bytes bytea := '';
BEGIN
    WHILE v_rest > 127 LOOP
        v_bytes := v_bytes || set_byte(decode('00', 'hex'), 0, (v_rest & 127)::int | 128);
        v_rest := v_rest >> 7;
    END LOOP;
    RETURN v_bytes || set_byte(decode('00', 'hex'), 0, v_rest::int);
END $$;

CREATE FUNCTION tourbillon.sized(p_bytes bytea) RETURNS bytea LANGUAGE sql IMMUTABLE AS
$$ SELECT tourbillon.varint(length(p_bytes)) || p_bytes $$;

CREATE FUNCTION tourbillon.sized(p_text text) RETURNS bytea LANGUAGE sql IMMUTABLE AS
$$ SELECT tourbillon.sized(convert_to(p_text, 'UTF8')) $$;

-- Returns what is wrong with a text that has more than `p_most` bytes. NULL for all others.
CREATE FUNCTION tourbillon.too_long(p_part text, p_text text, p_most int) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN octet_length(p_text) > p_most
        THEN format('%s has %s bytes, the most are %s', p_part, octet_length(p_text), p_most) END
$$;

-- Raises an error if a text has more than `p_most` bytes.
CREATE FUNCTION tourbillon.check_length(p_part text, p_text text, p_most int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_fault CONSTANT text := tourbillon.too_long(p_part, p_text, p_most);
BEGIN
    IF v_fault IS NOT NULL THEN
        RAISE EXCEPTION 'too long: %', v_fault USING ERRCODE = '22001';
    END IF;
END $$;

-- Returns a field of a policy, which is a whole number of at least `p_least` and at most `p_most`.
CREATE FUNCTION tourbillon.policy_number(p_policy jsonb, p_field text, p_least bigint, p_most bigint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE v_value jsonb := p_policy -> p_field;
BEGIN
    IF v_value IS NULL OR v_value = 'null' THEN
        RETURN NULL;
    END IF;
    IF jsonb_typeof(v_value) <> 'number' OR v_value #>> '{}' !~ '^[0-9]{1,19}$'
        OR (v_value #>> '{}')::numeric NOT BETWEEN p_least AND p_most THEN
        RAISE EXCEPTION 'policy: % must be a whole number from % to %', p_field, p_least, p_most
            USING ERRCODE = '22023';
    END IF;
    RETURN (v_value #>> '{}')::bigint;
END $$;

-- A time in milliseconds, as the crate serde writes a `Duration`.
CREATE FUNCTION tourbillon.duration(p_ms bigint) RETURNS jsonb LANGUAGE sql IMMUTABLE AS
$$ SELECT jsonb_build_object('secs', p_ms / 1000, 'nanos', p_ms % 1000 * 1000000) $$;

-- Checks a policy in the form of the HTTP API, and returns the form that the store keeps. NULL for none.
CREATE FUNCTION tourbillon.stored_policy(p_policy jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    v_longest CONSTANT bigint := 9223372036854775807;
    v_field text; v_number bigint; v_backoff jsonb; v_kind text; v_stored jsonb := '{}';
BEGIN
    IF p_policy IS NULL THEN
        RETURN NULL;
    END IF;
    IF jsonb_typeof(p_policy) <> 'object' THEN
        RAISE EXCEPTION 'policy must be an object' USING ERRCODE = '22023';
    END IF;
    SELECT k INTO v_field FROM jsonb_object_keys(p_policy) k WHERE k NOT IN ('attempts', 'max_age_ms', 'timeout_ms',
        'backoff', 'misfire_within_ms', 'jitter_ms', 'guarantee') LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'policy: % is not a field', v_field USING ERRCODE = '22023';
    END IF;
    IF coalesce(tourbillon.policy_number(p_policy, 'jitter_ms', 0, v_longest), 0) > 0 THEN
        RAISE EXCEPTION 'policy: jitter_ms cannot be given in SQL' USING ERRCODE = '0A000';
    END IF;
    v_number := tourbillon.policy_number(p_policy, 'attempts', 0, 1000);
    IF v_number IS NOT NULL THEN
        v_stored := v_stored || jsonb_build_object('attempts', v_number);
    END IF;
    v_number := tourbillon.policy_number(p_policy, 'max_age_ms', 0, v_longest);
    IF v_number IS NOT NULL THEN
        v_stored := v_stored || jsonb_build_object('max_age', tourbillon.duration(v_number));
    END IF;
    v_number := tourbillon.policy_number(p_policy, 'timeout_ms', 100, 3615000);
    IF v_number IS NOT NULL THEN
        v_stored := v_stored || jsonb_build_object('timeout', tourbillon.duration(v_number));
    END IF;
    v_number := tourbillon.policy_number(p_policy, 'misfire_within_ms', 0, v_longest);
    IF v_number IS NOT NULL THEN
        v_stored := v_stored || jsonb_build_object('misfire',
            jsonb_build_object('Within', tourbillon.duration(v_number)));
    END IF;
    IF p_policy ->> 'guarantee' IS NOT NULL THEN
        IF p_policy ->> 'guarantee' NOT IN ('at-least-once', 'at-most-once') THEN
            RAISE EXCEPTION 'policy: guarantee must be at-least-once or at-most-once' USING ERRCODE = '22023';
        END IF;
        v_stored := v_stored || jsonb_build_object('guarantee', p_policy -> 'guarantee');
    END IF;
    v_backoff := p_policy -> 'backoff';
    IF v_backoff IS NULL OR v_backoff = 'null' THEN
        RETURN v_stored;
    END IF;
    v_kind := v_backoff ->> 'kind';
    IF jsonb_typeof(v_backoff) <> 'object' OR v_kind IS NULL
        OR v_kind NOT IN ('standard', 'fixed', 'exponential', 'ladder') THEN
        RAISE EXCEPTION 'policy: the kind of backoff must be standard, fixed, exponential or ladder'
            USING ERRCODE = '22023';
    END IF;
    SELECT k INTO v_field FROM jsonb_object_keys(v_backoff) k WHERE k <> 'kind' AND NOT (k = ANY (CASE v_kind
        WHEN 'fixed' THEN '{pause_ms}'::text[] WHEN 'exponential' THEN '{first_ms,max_ms}'::text[]
        WHEN 'ladder' THEN '{pauses_ms}'::text[] ELSE '{}'::text[] END)) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'policy: a backoff of the kind % has no field %', v_kind, v_field USING ERRCODE = '22023';
    END IF;
    IF v_kind = 'fixed' THEN
        v_number := tourbillon.policy_number(v_backoff, 'pause_ms', 0, v_longest);
        IF v_number IS NULL THEN
            RAISE EXCEPTION 'policy: pause_ms is missing' USING ERRCODE = '22023';
        END IF;
        v_backoff := jsonb_build_object('Fixed', tourbillon.duration(v_number));
    ELSIF v_kind = 'exponential' THEN
        IF tourbillon.policy_number(v_backoff, 'first_ms', 0, v_longest) IS NULL
            OR tourbillon.policy_number(v_backoff, 'max_ms', 0, v_longest) IS NULL THEN
            RAISE EXCEPTION 'policy: first_ms or max_ms is missing' USING ERRCODE = '22023';
        END IF;
        v_backoff := jsonb_build_object('Exponential', jsonb_build_object(
            'first', tourbillon.duration((v_backoff ->> 'first_ms')::bigint),
            'max', tourbillon.duration((v_backoff ->> 'max_ms')::bigint)));
    ELSIF v_kind = 'ladder' THEN
        IF jsonb_typeof(v_backoff -> 'pauses_ms') IS DISTINCT FROM 'array'
            OR jsonb_array_length(v_backoff -> 'pauses_ms') > 32
            OR v_backoff -> 'pauses_ms' @> '[null]' THEN
            RAISE EXCEPTION 'policy: pauses_ms must be a list of at most 32 pauses' USING ERRCODE = '22023';
        END IF;
        SELECT jsonb_build_object('Ladder', coalesce(jsonb_agg(tourbillon.duration(
            tourbillon.policy_number(jsonb_build_object('pauses_ms', p.pause), 'pauses_ms', 0, v_longest))
            ORDER BY p.nth), '[]'))
        INTO v_backoff FROM jsonb_array_elements(v_backoff -> 'pauses_ms') WITH ORDINALITY p (pause, nth);
    ELSE
        v_backoff := '"Standard"';
    END IF;
    RETURN v_stored || jsonb_build_object('backoff', v_backoff);
END $$;
