-- Migration 1, second part: the functions for callers. They run in the transaction of their caller.
--
-- PostgreSQL gives the texts in a function the collation of the caller's arguments, such as that of a column. So a
-- function for callers compares no text. It passes its arguments with the collation "C" to the function that works.
--
-- No text of a function has a backslash, whose meaning a setting of the caller's session decides.
--
-- | SQLSTATE | meaning |
-- |---|---|
-- | 22023 | an argument is not valid: a name, a policy, a moment, a mode |
-- | 22001 | a text is too long |
-- | 54000 | a payload is too long, or a timer has too many labels |
-- | 22008 | the due moment is too far away |
-- | 23505 | another timer has the key (`schedule` and its kin only) |
-- | 0A000 | the function cannot do this: a jitter, the end of an occurrence of a series, a timer that nobody delivers |
-- | TB001 | the caller does not hold the lease of this token any more |
-- | 40001 | others changed the same timer; repeat the transaction |
--
-- At the levels REPEATABLE READ and SERIALIZABLE a lease may have begun after the snapshot of the transaction. A
-- function whose answer depends on the lease raises 40001 then.

-- The outcome of `place`: created, repeated, kept, replaced, exists or not-found. `was` is the phase of the timer
-- `old`.
CREATE TYPE tourbillon.placed AS (outcome text, id uuid, old uuid, was text);

-- A timer, as `look` shows it.
CREATE TYPE tourbillon.seen AS (
    id uuid, namespace text, key text, kind text, phase text, due timestamptz, scheduled timestamptz,
    created timestamptz, deliveries bigint, failures bigint, last_error text, reason text, labels text[],
    leased_until timestamptz
);

-- Raises an error unless a text is the name of a namespace or a queue of the service.
CREATE FUNCTION tourbillon.check_name(p_part text, p_name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF p_name IS NULL OR p_name !~ '^[A-Za-z0-9._-]{1,64}$' OR p_name IN ('.', '..') THEN
        RAISE EXCEPTION '% must have 1 to 64 letters, digits, `-`, `_` or `.`', p_part USING ERRCODE = '22023';
    END IF;
END $$;

-- Raises an error unless a timer is named by a key or by an id.
CREATE FUNCTION tourbillon.check_named(p_key text, p_namespace text, p_id uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF p_key IS NULL AND p_id IS NULL THEN
        RAISE EXCEPTION 'a key or an id must be given' USING ERRCODE = '22023';
    END IF;
    IF p_namespace IS NULL THEN
        RAISE EXCEPTION 'the namespace must not be NULL' USING ERRCODE = '22023';
    END IF;
END $$;

-- Called if no timer has the key. Raises an error if the service can have no such namespace: the caller has perhaps
-- left it out.
CREATE FUNCTION tourbillon.check_missing(p_key text, p_namespace text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF p_key IS NOT NULL AND (SELECT s.service FROM tourbillon.setting s) THEN
        PERFORM tourbillon.check_name('the namespace', p_namespace);
    END IF;
END $$;

-- Returns the namespace that `cancel`, `move_to` and `look` take by default. It is the default of the creations that
-- the deployment permits.
CREATE FUNCTION tourbillon.own_namespace() RETURNS text LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (SELECT CASE WHEN s.service THEN 'default' ELSE '' END FROM tourbillon.setting s);
END $$;

-- Raises an error if the service delivers the timers. It has a form of its own for their payloads, and rules for their
-- keys, queues and times, which `schedule_callback` and `schedule_queue` keep to.
CREATE FUNCTION tourbillon.check_no_service() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT s.service FROM tourbillon.setting s) THEN
        RAISE EXCEPTION 'this schema is that of tourbillond, which delivers no timers of programs'
            USING ERRCODE = '0A000', HINT = 'use schedule_callback or schedule_queue, or the schema of a program';
    END IF;
END $$;

-- Raises an error unless the service delivers the timers.
CREATE FUNCTION tourbillon.check_service() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT (SELECT s.service FROM tourbillon.setting s) THEN
        RAISE EXCEPTION 'no tourbillond has opened this schema, so none would deliver the timer' USING ERRCODE = '0A000';
    END IF;
END $$;

-- Returns the due moment in milliseconds. A part of a millisecond is rounded up, so no timer is early. Without `p_due`
-- and `p_delay` the moment is now, and so it is with a negative delay. Days and months of a delay count by the
-- calendar, in the time zone of the session.
CREATE FUNCTION tourbillon.due_ms(p_due timestamptz, p_delay interval, p_now bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_due CONSTANT numeric := CASE
        WHEN NOT isfinite(p_due) THEN NULL
        WHEN p_due IS NOT NULL THEN ceil(extract(epoch FROM p_due) * 1000)
        -- One millisecond more, because `p_now` is rounded down.
        WHEN p_delay IS NOT NULL THEN greatest(ceil(extract(epoch FROM to_timestamp(p_now / 1000.0) + p_delay) * 1000)
            + CASE WHEN p_delay > interval '0' THEN 1 ELSE 0 END, p_now)
        ELSE p_now END;
BEGIN
    IF v_due IS NULL THEN
        RAISE EXCEPTION 'the due moment must be finite' USING ERRCODE = '22023';
    END IF;
    IF v_due < 0 THEN
        RAISE EXCEPTION 'the due moment must not be before 1970' USING ERRCODE = '22023';
    END IF;
    -- The second bound is `UtcMillis::MAX` of the library, in the year 9999.
    IF v_due > p_now + 100::numeric * 366 * 86400000 OR v_due >= 253402207200000 THEN
        RAISE EXCEPTION 'the due moment must be at most a hundred years away, and before the year 10000'
            USING ERRCODE = '22008';
    END IF;
    RETURN v_due::bigint;
END $$;

-- Checks labels, and returns them in order, each once. NULL for none.
CREATE FUNCTION tourbillon.checked_labels(p_labels text[]) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE v_labels text[];
BEGIN
    SELECT array_agg(DISTINCT l COLLATE "C" ORDER BY l COLLATE "C") INTO v_labels FROM unnest(p_labels) l;
    IF cardinality(v_labels) > 8 THEN
        RAISE EXCEPTION 'a timer may have at most 8 labels' USING ERRCODE = '54000';
    END IF;
    IF array_position(v_labels, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'a label must not be NULL' USING ERRCODE = '22023';
    END IF;
    PERFORM tourbillon.check_length('a label', l, 64) FROM unnest(v_labels) l;
    RETURN v_labels;
END $$;

-- Wakes the nodes that listen. The caller's timer is due at once. A notification makes PREPARE TRANSACTION fail, so
-- none is sent if no node that listens is alive. All statements of some transactions have one snapshot. Its signs of
-- life are as old as the transaction, so they are compared with the transaction's first moment.
CREATE FUNCTION tourbillon.wake(p_now bigint) RETURNS void LANGUAGE sql VOLATILE AS
$$ SELECT pg_notify('tourbillon', '')
   WHERE EXISTS (SELECT 1 FROM tourbillon.node n
       WHERE n.listens AND n.seen + n.ttl > CASE WHEN tourbillon.has_one_snapshot()
           THEN least(p_now, (extract(epoch FROM transaction_timestamp()) * 1000)::bigint)
           ELSE p_now END) $$;

-- Stores a timer whose arguments are valid. `p_scheduled` may equal `p_due`.
--
-- Mostly no other timer is in the way. So the row is inserted first, and after a conflict the function looks for the
-- cause. The function looks first in three cases: the caller has chosen the id, the mode may replace a timer, or all
-- statements of the transaction have one snapshot. In the last case the snapshot may show a timer that has ended since.
-- The lock of that timer raises 40001, and an insertion would not.
CREATE FUNCTION tourbillon.store_timer(
    p_id uuid, p_due bigint, p_scheduled bigint, p_now bigint, p_namespace text, p_key text, p_kind text,
    p_payload bytea, p_labels text[], p_extra jsonb, p_mode text, p_replaces uuid
) RETURNS tourbillon.placed LANGUAGE plpgsql AS $$
DECLARE
    v_chosen CONSTANT boolean := coalesce(p_extra ? 'chosen', false);
    v_looks boolean := v_chosen OR p_mode IN ('replace', 'replace-keep-due', 'replace-only')
        OR tourbillon.has_one_snapshot();
    v_number xid8; v_old uuid; v_was text; v_due bigint := p_due; v_scheduled bigint := p_scheduled; v_extra jsonb;
BEGIN
    -- The insertion may wait for another transaction. This transaction gets its number before, so that the nodes know
    -- its age. The row of a timer that is due late has no number.
    v_number := pg_current_xact_id();
    FOR turn IN 1 .. 100 LOOP
        IF v_looks THEN
            -- If another transaction ends the timer at present, this statement waits for it. A chosen id is then among
            -- the remembered ids.
            PERFORM 1 FROM tourbillon.timer t WHERE t.id = p_id FOR UPDATE;
            IF FOUND THEN
                RETURN ROW('repeated', p_id, NULL, NULL)::tourbillon.placed;
            END IF;
            IF v_chosen THEN
                PERFORM 1 FROM tourbillon.remembered r WHERE r.id = p_id AND r.until > p_now;
                IF FOUND THEN
                    RETURN ROW('repeated', p_id, NULL, NULL)::tourbillon.placed;
                END IF;
            END IF;
            v_due := p_due;
            v_scheduled := p_scheduled;
            v_was := NULL;
            v_old := CASE WHEN p_key IS NOT NULL THEN tourbillon.lock_at(NULL, p_namespace, p_key) END;
            IF v_old IS NULL AND p_mode = 'replace-only' THEN
                RETURN ROW('not-found', NULL, NULL, NULL)::tourbillon.placed;
            END IF;
        END IF;
        IF v_old IS NOT NULL THEN
            v_was := tourbillon.phase_of_locked(v_old);
            IF p_mode = 'keep' THEN
                RETURN ROW('kept', v_old, v_old, v_was)::tourbillon.placed;
            END IF;
            IF p_mode = 'reject' OR p_mode = 'replace-only' AND v_old IS DISTINCT FROM p_replaces THEN
                RETURN ROW('exists', NULL, v_old, v_was)::tourbillon.placed;
            END IF;
            IF p_mode = 'replace-keep-due' THEN
                SELECT t.due, (t.extra ->> 'scheduled')::bigint INTO v_due, v_scheduled
                FROM tourbillon.timer t WHERE t.id = v_old;
            END IF;
            PERFORM tourbillon.withdraw_locked(v_old, 'r', p_now);
        END IF;
        v_extra := CASE WHEN v_scheduled <> v_due
            THEN coalesce(p_extra, '{}') || jsonb_build_object('scheduled', v_scheduled) ELSE p_extra END;
        INSERT INTO tourbillon.timer (id, due, created, xid, shard, namespace, key, kind, payload, labels, extra)
        VALUES (p_id, v_due, p_now, tourbillon.xid_for(v_due, p_now), tourbillon.shard_of(p_id), p_namespace, p_key,
            p_kind, p_payload, p_labels, v_extra)
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            IF v_chosen THEN
                PERFORM tourbillon.check_not_remembered(p_id, p_now);
            END IF;
            IF v_due < p_now + 250 THEN
                PERFORM tourbillon.wake(p_now);
            END IF;
            RETURN ROW(CASE WHEN v_old IS NULL THEN 'created' ELSE 'replaced' END, p_id, v_old, v_was)
                ::tourbillon.placed;
        END IF;
        IF v_old IS NOT NULL THEN
            -- Only the id can be in the way: this transaction holds the key.
            RAISE EXCEPTION 'another timer has the id %', p_id USING ERRCODE = '40001';
        END IF;
        v_looks := true;
    END LOOP;
    RAISE EXCEPTION 'other transactions kept changing the timer with the key %', p_key USING ERRCODE = '40001';
END $$;

-- Checks the arguments that a caller has given, and stores the timer. Few of them are given in most calls. PostgreSQL
-- prepares each expression of a function anew in each transaction, so the checks of one argument share one expression.
CREATE FUNCTION tourbillon.place_given(
    p_kind text, p_payload bytea, p_due timestamptz, p_delay interval, p_key text, p_namespace text, p_labels text[],
    p_policy jsonb, p_mode text, p_replaces uuid, p_id uuid, p_trace text
) RETURNS tourbillon.placed LANGUAGE plpgsql AS $$
DECLARE
    v_now CONSTANT bigint := tourbillon.now_ms();
    v_fault text; v_scheduled bigint; v_policy jsonb; v_extra jsonb; v_labels text[];
BEGIN
    IF p_kind IS NULL OR p_namespace IS NULL OR p_payload IS NULL THEN
        RAISE EXCEPTION 'kind, namespace and payload must not be NULL' USING ERRCODE = '22023';
    END IF;
    IF p_mode IS NULL OR p_mode NOT IN ('reject', 'keep', 'replace', 'replace-keep-due', 'replace-only') THEN
        RAISE EXCEPTION 'if_present must be reject, keep, replace, replace-keep-due or replace-only'
            USING ERRCODE = '22023';
    END IF;
    IF (p_mode = 'replace-only') <> (p_replaces IS NOT NULL) THEN
        RAISE EXCEPTION 'replaces must be given in the mode replace-only, and in no other' USING ERRCODE = '22023';
    END IF;
    IF p_mode = 'replace-only' AND p_key IS NULL THEN
        RAISE EXCEPTION 'the mode replace-only needs a key' USING ERRCODE = '22023';
    END IF;
    IF p_due IS NOT NULL AND p_delay IS NOT NULL THEN
        RAISE EXCEPTION 'at most one of due and delay may be given' USING ERRCODE = '22023';
    END IF;
    v_fault := coalesce(tourbillon.too_long('the kind', p_kind, 64), tourbillon.too_long('the key', p_key, 255),
        tourbillon.too_long('the namespace', p_namespace, 64), tourbillon.too_long('the trace context', p_trace, 255));
    IF v_fault IS NOT NULL THEN
        RAISE EXCEPTION 'too long: %', v_fault USING ERRCODE = '22001';
    END IF;
    -- 64 KiB, and 11 KiB for the URL and the headers of a callback.
    IF octet_length(p_payload) > 76800 THEN
        RAISE EXCEPTION 'the payload has % bytes, the most are 76800', octet_length(p_payload) USING ERRCODE = '54000';
    END IF;
    IF p_labels IS NOT NULL THEN
        v_labels := tourbillon.checked_labels(p_labels);
    END IF;
    v_scheduled := tourbillon.due_ms(p_due, p_delay, v_now);
    IF p_policy IS NOT NULL OR p_trace IS NOT NULL OR p_id IS NOT NULL THEN
        v_policy := nullif(tourbillon.stored_policy(p_policy), '{}');
        v_extra := nullif(CASE WHEN v_policy IS NULL THEN '{}' ELSE jsonb_build_object('policy', v_policy) END
            || CASE WHEN p_trace IS NULL THEN '{}' ELSE jsonb_build_object('trace', p_trace) END
            || CASE WHEN p_id IS NULL THEN '{}' ELSE '{"chosen": true}'::jsonb END, '{}');
    END IF;
    -- A moment that has passed becomes now, as in the library, unless the policy says how late is too late.
    RETURN tourbillon.store_timer(coalesce(p_id, tourbillon.fresh_id()),
        CASE WHEN v_policy ? 'misfire' THEN v_scheduled ELSE greatest(v_scheduled, v_now) END, v_scheduled, v_now,
        p_namespace, p_key, p_kind, p_payload, v_labels, v_extra, p_mode, p_replaces);
END $$;

-- Returns the id of the timer that is stored after `place`. Raises an error if another timer has the key.
CREATE FUNCTION tourbillon.placed_id(p_placed tourbillon.placed, p_key text) RETURNS uuid LANGUAGE plpgsql AS $$
BEGIN
    IF p_placed.outcome = 'exists' THEN
        RAISE EXCEPTION 'the timer % has the key %', p_placed.old, p_key
            USING ERRCODE = '23505', HINT = 'if_present may be keep, replace or replace-keep-due';
    END IF;
    RETURN p_placed.id;
END $$;

-- Stores a new timer, as the five modes of `if_present` say: reject, keep, replace, replace-keep-due, and replace-only,
-- which replaces the timer with the id `replaces` alone. At most one of `due` and `delay` is given; without both, the
-- timer is due now. If the caller chooses the id, the id counts as stored for an hour after the end of the timer.
--
-- Here and in `schedule` the default of `namespace` is that of programs without namespaces. The service has no such
-- namespace.
CREATE FUNCTION tourbillon.place(
    kind text, payload bytea DEFAULT '', due timestamptz DEFAULT NULL, delay interval DEFAULT NULL,
    key text DEFAULT NULL, namespace text DEFAULT '', labels text[] DEFAULT NULL, policy jsonb DEFAULT NULL,
    if_present text DEFAULT 'reject', replaces uuid DEFAULT NULL, id uuid DEFAULT NULL, trace text DEFAULT NULL
) RETURNS tourbillon.placed LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM tourbillon.check_no_service();
    RETURN tourbillon.place_given(place.kind COLLATE "C", place.payload, place.due, place.delay, place.key,
        place.namespace, place.labels, place.policy, place.if_present, place.replaces, place.id, place.trace);
END $$;

-- Stores a new timer, as `place` does, and returns the id of the timer that is stored now. `payload` and `data` are two
-- forms of the same bytes.
CREATE FUNCTION tourbillon.schedule(
    kind text, data jsonb DEFAULT NULL, due timestamptz DEFAULT NULL, delay interval DEFAULT NULL,
    key text DEFAULT NULL, namespace text DEFAULT '', labels text[] DEFAULT NULL, policy jsonb DEFAULT NULL,
    if_present text DEFAULT 'reject', replaces uuid DEFAULT NULL, id uuid DEFAULT NULL, trace text DEFAULT NULL,
    payload bytea DEFAULT NULL
) RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF schedule.data IS NOT NULL AND schedule.payload IS NOT NULL THEN
        RAISE EXCEPTION 'at most one of data and payload may be given' USING ERRCODE = '22023';
    END IF;
    PERFORM tourbillon.check_no_service();
    RETURN tourbillon.placed_id(tourbillon.place_given(schedule.kind COLLATE "C",
        coalesce(schedule.payload, convert_to(schedule.data::text, 'UTF8'), ''), schedule.due, schedule.delay,
        schedule.key, schedule.namespace, schedule.labels, schedule.policy, schedule.if_present, schedule.replaces,
        schedule.id, schedule.trace), schedule.key COLLATE "C");
END $$;

-- Returns whether a host is an IPv4 address as readers of URLs take it: one to four numbers, decimal, octal or
-- hexadecimal, of which the last one stands for all bytes that are left.
CREATE FUNCTION tourbillon.is_ipv4(p_host text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_parts CONSTANT text[] := string_to_array(lower(rtrim(p_host, '.')), '.');
    v_count CONSTANT int := cardinality(v_parts); v_digits text; v_base int; v_number bigint; v_most bigint;
BEGIN
    IF v_count > 4 THEN
        RETURN false;
    END IF;
    FOR i IN 1 .. v_count LOOP
        v_digits := v_parts[i];
        v_base := CASE WHEN v_digits ~ '^0x[0-9a-f]*$' THEN 16 WHEN v_digits ~ '^0[0-7]*$' THEN 8
            WHEN v_digits ~ '^[0-9]+$' AND left(v_digits, 1) <> '0' THEN 10 END;
        IF v_base IS NULL THEN
            RETURN false;
        END IF;
        v_most := CASE WHEN i < v_count THEN 255 ELSE (1::bigint << (8 * (5 - v_count))) - 1 END;
        v_number := 0;
        FOR j IN (CASE WHEN v_base = 16 THEN 3 ELSE 1 END) .. length(v_digits) LOOP
            v_number := v_number * v_base + position(substr(v_digits, j, 1) IN '0123456789abcdef') - 1;
            IF v_number > v_most THEN
                RETURN false;
            END IF;
        END LOOP;
    END LOOP;
    RETURN true;
END $$;

-- Returns whether a text is the URL of a callback, as far as SQL can tell. A name with letters beyond ASCII, or with a
-- part `xn--`, is checked at the delivery alone. Raises an error if the port is not permitted.
CREATE FUNCTION tourbillon.is_url(p_url text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    -- A reader of URLs drops blanks around a URL, drops tabs and ends of lines, and takes a backslash for a slash.
    v_url CONSTANT text := translate(
        regexp_replace(p_url, '^[' || chr(1) || '- ]+|[' || chr(1) || '- ]+$', '', 'g'),
        chr(92) || chr(9) || chr(10) || chr(13), '/');
    v_authority CONSTANT text := substring(v_url FROM '^[Hh][Tt][Tt][Pp][Ss]?:/*([^/?#]*)');
    v_port CONSTANT text := ltrim(substring(v_authority FROM ':([0-9]+)$'), '0'); v_host text;
BEGIN
    IF v_authority LIKE '[%' THEN
        v_host := substring(v_authority FROM '^[[]([0-9A-Fa-f:]+([0-9]+([.][0-9]+){3})?)[]](:[0-9]*)?$');
        BEGIN
            IF family(v_host::inet) <> 6 THEN
                RETURN false;
            END IF;
        EXCEPTION WHEN invalid_text_representation THEN
            RETURN false;
        END;
    ELSE
        v_host := substring(v_authority FROM '^([^]' || chr(1) || '- %:<>@[^|' || chr(127) || ']+)(:[0-9]*)?$');
        IF v_host ~ '(^|[.])([0-9]+|0[Xx][0-9A-Fa-f]*)[.]?$' THEN
            IF NOT tourbillon.is_ipv4(v_host) THEN
                RETURN false;
            END IF;
        -- DNS has no other names. A name with letters beyond ASCII has other letters in DNS.
        ELSIF v_host ~ '^[!-~]+$' AND (length(regexp_replace(v_host, '[.]$', '')) > 253
            OR v_host !~ '^([A-Za-z0-9_*][A-Za-z0-9_-]{0,62}[.])*[A-Za-z0-9_*][A-Za-z0-9_-]{0,62}[.]?$') THEN
            RETURN false;
        END IF;
    END IF;
    IF v_host IS NULL OR length(v_port) > 5 OR v_port <> '' AND v_port::int > 65535 THEN
        RETURN false;
    END IF;
    -- Servers of other protocols might take a request for a command.
    IF v_port = '' OR v_port::int < 1024 AND v_port NOT IN ('80', '443') OR v_port IN ('2049', '6379', '11211') THEN
        RAISE EXCEPTION 'the port of url must be 80, 443 or one from 1024 on, and not that of another protocol'
            USING ERRCODE = '22023';
    END IF;
    RETURN true;
END $$;

-- Checks the arguments of `schedule_callback`, and stores the timer.
CREATE FUNCTION tourbillon.place_callback(
    p_url text, p_data jsonb, p_due timestamptz, p_delay interval, p_key text, p_namespace text, p_labels text[],
    p_policy jsonb, p_if_present text, p_replaces uuid, p_id uuid, p_trace text, p_method text, p_headers jsonb,
    p_body bytea
) RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE
    v_headers jsonb := coalesce(p_headers, '{}'); v_bytes bytea; v_length bigint := 0; v_name text; v_value text;
    v_list bytea := ''; v_count int := 0; v_timeout bigint;
BEGIN
    PERFORM tourbillon.check_service();
    PERFORM tourbillon.check_name('the namespace', p_namespace);
    -- A key stands in the path of a request, so the service has no empty key.
    IF p_key = '' THEN
        RAISE EXCEPTION 'a key must have at least one byte' USING ERRCODE = '22023';
    END IF;
    PERFORM tourbillon.check_length('the URL', p_url, 2048);
    IF NOT tourbillon.is_url(p_url) THEN
        RAISE EXCEPTION 'url must be an https or http URL without a user' USING ERRCODE = '22023';
    END IF;
    IF p_method IS NULL OR p_method NOT IN ('GET', 'POST', 'PUT', 'PATCH', 'DELETE') THEN
        RAISE EXCEPTION 'method must be GET, POST, PUT, PATCH or DELETE' USING ERRCODE = '22023';
    END IF;
    IF p_data IS NOT NULL AND p_body IS NOT NULL THEN
        RAISE EXCEPTION 'at most one of data and body may be given' USING ERRCODE = '22023';
    END IF;
    v_bytes := coalesce(p_body, convert_to(p_data::text, 'UTF8'), '');
    IF octet_length(v_bytes) > 65536 THEN
        RAISE EXCEPTION 'the body has % bytes, the most are 65536', octet_length(v_bytes) USING ERRCODE = '54000';
    END IF;
    IF jsonb_typeof(v_headers) <> 'object' THEN
        RAISE EXCEPTION 'headers must be an object of texts' USING ERRCODE = '22023';
    END IF;
    IF p_data IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM jsonb_object_keys(v_headers) n WHERE lower(n COLLATE "C") = 'content-type') THEN
        v_headers := v_headers || '{"content-type": "application/json"}';
    END IF;
    FOR v_name, v_value IN
        SELECT h.key, CASE WHEN jsonb_typeof(h.value) = 'string' THEN h.value #>> '{}' END
        FROM jsonb_each(v_headers) h ORDER BY h.key COLLATE "C"
    LOOP
        IF v_value IS NULL OR v_name !~ '^[A-Za-z0-9!#$%&''*+.^_`|~-]+$'
            OR v_value ~ ('[' || chr(1) || '-' || chr(8) || chr(10) || '-' || chr(31) || chr(127) || ']')
            OR lower(v_name) LIKE 'proxy-%' OR lower(v_name) IN ('connection', 'content-length', 'expect', 'host',
                'keep-alive', 'te', 'trailer', 'transfer-encoding', 'upgrade', 'webhook-id', 'webhook-signature',
                'webhook-timestamp', 'tourbillon-attempt', 'tourbillon-scheduled-for', 'tourbillon-request-id',
                'traceparent') THEN
            RAISE EXCEPTION 'the header % is not permitted, or not valid', v_name USING ERRCODE = '22023';
        END IF;
        v_length := v_length + octet_length(v_name) + octet_length(v_value) + 4;
        v_count := v_count + 1;
        v_list := v_list || tourbillon.sized(v_name) || tourbillon.sized(v_value);
    END LOOP;
    IF v_length > 8192 THEN
        RAISE EXCEPTION 'too long: the headers' USING ERRCODE = '22001';
    END IF;
    v_timeout := coalesce(tourbillon.policy_number(p_policy, 'timeout_ms', 100, 30000), 15000);
    RETURN tourbillon.placed_id(tourbillon.place_given('callback',
        -- The version of the form, then a head without a fingerprint and without the id of a request.
        decode('010000', 'hex') || tourbillon.sized(p_url) || tourbillon.sized(p_method)
            || tourbillon.varint(v_count) || v_list || tourbillon.sized(v_bytes) || tourbillon.varint(v_timeout),
        p_due, p_delay, p_key, p_namespace, p_labels,
        -- The runtime waits for the handler 15 seconds longer than the handler for its receiver.
        coalesce(p_policy, '{}') || jsonb_build_object('timeout_ms', v_timeout + 15000),
        p_if_present, p_replaces, p_id, p_trace), p_key);
END $$;

-- Stores a timer of the service `tourbillond` that sends a request when it is due, and returns its id. The service
-- checks the destination again when it sends the request. `data` and `body` are two forms of the request's body.
CREATE FUNCTION tourbillon.schedule_callback(
    url text, data jsonb DEFAULT NULL, due timestamptz DEFAULT NULL, delay interval DEFAULT NULL,
    key text DEFAULT NULL, namespace text DEFAULT 'default', labels text[] DEFAULT NULL, policy jsonb DEFAULT NULL,
    if_present text DEFAULT 'reject', replaces uuid DEFAULT NULL, id uuid DEFAULT NULL, trace text DEFAULT NULL,
    method text DEFAULT 'POST', headers jsonb DEFAULT NULL, body bytea DEFAULT NULL
) RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN tourbillon.place_callback(schedule_callback.url COLLATE "C", schedule_callback.data,
        schedule_callback.due, schedule_callback.delay, schedule_callback.key, schedule_callback.namespace,
        schedule_callback.labels, schedule_callback.policy, schedule_callback.if_present, schedule_callback.replaces,
        schedule_callback.id, schedule_callback.trace, schedule_callback.method, schedule_callback.headers,
        schedule_callback.body);
END $$;

-- Checks the arguments of `schedule_queue`, and stores the timer.
CREATE FUNCTION tourbillon.place_in_queue(
    p_queue text, p_data jsonb, p_due timestamptz, p_delay interval, p_key text, p_namespace text, p_labels text[],
    p_policy jsonb, p_if_present text, p_replaces uuid, p_id uuid, p_trace text, p_body bytea
) RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE v_bytes bytea; v_timeout bigint;
BEGIN
    PERFORM tourbillon.check_service();
    PERFORM tourbillon.check_name('the namespace', p_namespace);
    PERFORM tourbillon.check_name('the queue', p_queue);
    IF p_key = '' THEN
        RAISE EXCEPTION 'a key must have at least one byte' USING ERRCODE = '22023';
    END IF;
    IF p_data IS NOT NULL AND p_body IS NOT NULL THEN
        RAISE EXCEPTION 'at most one of data and body may be given' USING ERRCODE = '22023';
    END IF;
    v_bytes := coalesce(p_body, convert_to(p_data::text, 'UTF8'), '');
    IF octet_length(v_bytes) > 65536 THEN
        RAISE EXCEPTION 'the body has % bytes, the most are 65536', octet_length(v_bytes) USING ERRCODE = '54000';
    END IF;
    v_timeout := coalesce(tourbillon.policy_number(p_policy, 'timeout_ms', 100, 3600000), 15000);
    RETURN tourbillon.placed_id(tourbillon.place_given('pull',
        -- The version of the form, then a head without a fingerprint and without the id of a request.
        decode('010000', 'hex') || tourbillon.sized(p_queue) || tourbillon.sized(v_bytes)
            || tourbillon.varint(v_timeout),
        p_due, p_delay, p_key, p_namespace, p_labels,
        -- The runtime waits for the handler of a queue for an hour and 15 seconds.
        coalesce(p_policy, '{}') || '{"timeout_ms": 3615000}',
        p_if_present, p_replaces, p_id, p_trace), p_key);
END $$;

-- Stores a timer of the service `tourbillond` that receivers fetch from a queue once it is due, and returns its id.
CREATE FUNCTION tourbillon.schedule_queue(
    queue text, data jsonb DEFAULT NULL, due timestamptz DEFAULT NULL, delay interval DEFAULT NULL,
    key text DEFAULT NULL, namespace text DEFAULT 'default', labels text[] DEFAULT NULL, policy jsonb DEFAULT NULL,
    if_present text DEFAULT 'reject', replaces uuid DEFAULT NULL, id uuid DEFAULT NULL, trace text DEFAULT NULL,
    body bytea DEFAULT NULL
) RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN tourbillon.place_in_queue(schedule_queue.queue COLLATE "C", schedule_queue.data, schedule_queue.due,
        schedule_queue.delay, schedule_queue.key, schedule_queue.namespace, schedule_queue.labels,
        schedule_queue.policy, schedule_queue.if_present, schedule_queue.replaces, schedule_queue.id,
        schedule_queue.trace, schedule_queue.body);
END $$;

-- Withdraws the timer with a key, or with an id. With both, the timer with the key is withdrawn only if it has the id.
-- Returns `cancelled` if no delivery of the timer begins any more, `in-flight` if one has begun, and `not-found`.
CREATE FUNCTION tourbillon.withdraw_named(p_key text, p_namespace text, p_id uuid) RETURNS text LANGUAGE plpgsql AS $$
DECLARE v_id uuid;
BEGIN
    PERFORM tourbillon.check_named(p_key, p_namespace, p_id);
    v_id := tourbillon.lock_at(CASE WHEN p_key IS NULL THEN p_id END, p_namespace, p_key);
    IF v_id IS NULL OR v_id <> p_id THEN
        PERFORM tourbillon.check_missing(p_key, p_namespace);
        RETURN 'not-found';
    END IF;
    RETURN CASE WHEN tourbillon.withdraw_locked(v_id, 'c', tourbillon.now_ms()) THEN 'in-flight' ELSE 'cancelled' END;
END $$;

-- Withdraws a timer, as `withdraw_named` does.
CREATE FUNCTION tourbillon.cancel(
    key text DEFAULT NULL, namespace text DEFAULT tourbillon.own_namespace(), id uuid DEFAULT NULL
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN tourbillon.withdraw_named(cancel.key COLLATE "C", cancel.namespace, cancel.id);
END $$;

-- Moves the due moment of a timer. Returns `moved`, `not-found`, `leased` (a delivery has begun) or `dead`. An
-- occurrence of a series or of a schedule keeps its scheduled instant. A parked timer that is moved into the future
-- becomes pending, unless it or its series is paused.
CREATE FUNCTION tourbillon.move_named(
    p_key text, p_due timestamptz, p_delay interval, p_namespace text, p_id uuid
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE v_now CONSTANT bigint := tourbillon.now_ms(); v_id uuid; v_due bigint; v_was text;
BEGIN
    PERFORM tourbillon.check_named(p_key, p_namespace, p_id);
    IF (p_due IS NULL) = (p_delay IS NULL) THEN
        RAISE EXCEPTION 'one of due and delay must be given' USING ERRCODE = '22023';
    END IF;
    v_due := tourbillon.due_ms(p_due, p_delay, v_now);
    v_id := tourbillon.lock_at(CASE WHEN p_key IS NULL THEN p_id END, p_namespace, p_key);
    IF v_id IS NULL OR v_id <> p_id THEN
        PERFORM tourbillon.check_missing(p_key, p_namespace);
        RETURN 'not-found';
    END IF;
    v_was := tourbillon.phase_of_locked(v_id);
    IF v_was IN ('leased', 'dead') THEN
        RETURN v_was;
    END IF;
    UPDATE tourbillon.timer t SET due = v_due, xid = tourbillon.xid_for(v_due, v_now), extra = nullif(
        CASE WHEN t.extra ?| ARRAY['series', 'age_from']
            THEN t.extra || jsonb_build_object('scheduled', coalesce((t.extra ->> 'scheduled')::bigint, t.due))
                || CASE WHEN t.extra ? 'age_from' THEN jsonb_build_object('age_from', v_due) ELSE '{}' END
            ELSE t.extra - 'scheduled' END, '{}')
    WHERE t.id = v_id;
    IF v_was = 'parked' AND v_due > v_now THEN
        UPDATE tourbillon.timer t SET phase = 'p', reason = NULL
        WHERE t.id = v_id AND t.reason <> 'paused'
            AND NOT coalesce((t.extra #>> '{series,paused}')::boolean, false);
    END IF;
    IF v_due < v_now + 250 THEN
        PERFORM tourbillon.wake(v_now);
    END IF;
    RETURN 'moved';
END $$;

-- Moves a timer, as `move_named` does.
CREATE FUNCTION tourbillon.move_to(
    key text DEFAULT NULL, due timestamptz DEFAULT NULL, delay interval DEFAULT NULL,
    namespace text DEFAULT tourbillon.own_namespace(), id uuid DEFAULT NULL
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN tourbillon.move_named(move_to.key COLLATE "C", move_to.due, move_to.delay, move_to.namespace, move_to.id);
END $$;

-- Returns the timer with a key, or with an id, as this transaction sees it.
CREATE FUNCTION tourbillon.seen_named(p_key text, p_namespace text, p_id uuid) RETURNS SETOF tourbillon.seen
LANGUAGE plpgsql STABLE AS $$
BEGIN
    PERFORM tourbillon.check_named(p_key, p_namespace, p_id);
    RETURN QUERY
    SELECT t.id, t.namespace::text, t.key::text, t.kind::text,
        CASE WHEN l.id IS NOT NULL THEN 'leased' WHEN t.phase = 'k' THEN 'parked' WHEN t.phase = 'd' THEN 'dead'
            ELSE 'pending' END,
        to_timestamp(t.due / 1000.0), to_timestamp(coalesce((t.extra ->> 'scheduled')::bigint, t.due) / 1000.0),
        to_timestamp(t.created / 1000.0),
        coalesce((t.extra ->> 'deliveries')::bigint, 0) + CASE WHEN l.id IS NULL THEN 0 ELSE 1 END,
        coalesce((t.extra ->> 'failures')::bigint, 0), t.extra ->> 'last_error', t.reason::text,
        coalesce(t.labels, '{}')::text[], to_timestamp(l.until / 1000.0)
    FROM tourbillon.timer t LEFT JOIN tourbillon.lease l ON l.id = t.id
    WHERE CASE WHEN p_key IS NULL THEN t.id = p_id
        ELSE t.namespace = p_namespace AND t.key = p_key AND t.phase IN ('p', 'k')
            AND (p_id IS NULL OR t.id = p_id) END;
    IF NOT FOUND THEN
        PERFORM tourbillon.check_missing(p_key, p_namespace);
    END IF;
END $$;

-- Returns a timer, as `seen_named` does.
CREATE FUNCTION tourbillon.look(
    key text DEFAULT NULL, namespace text DEFAULT tourbillon.own_namespace(), id uuid DEFAULT NULL
) RETURNS SETOF tourbillon.seen
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT * FROM tourbillon.seen_named(look.key COLLATE "C", look.namespace, look.id);
END $$;

-- Ends the delivery of a timer, in the transaction of the caller. `token` is the token of the lease: 32 digits to the
-- base 16, the incarnation before the number of the claim. A receiver that has fetched the timer from a queue gives the
-- name of its claim instead: 112 digits, of which the second 32 are the id, and the next 32 the token. Raises TB001 if
-- the caller does not hold the lease any more, so that the transaction rolls back. Then another delivery of the timer
-- may have begun.
CREATE FUNCTION tourbillon.end_named(p_id uuid, p_token text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_extra jsonb; v_phase "char";
    v_token CONSTANT text := CASE length(p_token) WHEN 112 THEN substr(p_token, 65, 32) ELSE p_token END;
BEGIN
    IF p_id IS NULL OR p_token IS NULL OR p_token !~ '^([0-9a-f]{32}|[0-9a-f]{112})$' THEN
        RAISE EXCEPTION 'an end needs the id, and the token of the lease or the name of the claim, in hexadecimal digits'
            USING ERRCODE = '22023';
    END IF;
    -- The timers that were claimed together have the same token.
    IF length(p_token) = 112 AND substr(p_token, 33, 32)::uuid <> p_id THEN
        RAISE EXCEPTION 'the claim is of another timer than %', p_id USING ERRCODE = '22023';
    END IF;
    SELECT t.extra, t.phase INTO v_extra, v_phase FROM tourbillon.timer t WHERE t.id = p_id FOR UPDATE;
    PERFORM 1 FROM tourbillon.lease l WHERE l.id = p_id
        AND l.incarnation = ('x' || left(v_token, 16))::bit(64)::bigint
        AND l.claim = ('x' || right(v_token, 16))::bit(64)::bigint;
    IF NOT FOUND THEN
        -- A lease that is hidden from this transaction may have the token.
        PERFORM tourbillon.is_leased(p_id);
        RAISE EXCEPTION 'the lease of the timer % is lost', p_id USING ERRCODE = 'TB001';
    END IF;
    IF v_extra ? 'series' AND v_phase = 'p' THEN
        RAISE EXCEPTION 'an occurrence of a series is ended by its holder, which knows the next instant'
            USING ERRCODE = '0A000';
    END IF;
    PERFORM tourbillon.remove_locked(p_id, tourbillon.now_ms());
END $$;

-- Ends a delivery, as `end_named` does.
CREATE FUNCTION tourbillon.done(id uuid, token text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM tourbillon.end_named(done.id, done.token COLLATE "C");
END $$;
