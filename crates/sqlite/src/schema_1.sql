-- Timers. `record` has the whole timer, with a checksum; the other columns are copies for the indexes and for people.
-- `phase` is 0 for pending, 1 for leased, 2 for parked, 3 for dead. Moments are milliseconds since the start of 1970.
CREATE TABLE tourbillon_timers (
    id BLOB NOT NULL PRIMARY KEY,
    namespace TEXT NOT NULL,
    key TEXT,
    owns_key INTEGER NOT NULL,
    kind TEXT NOT NULL,
    phase INTEGER NOT NULL,
    created INTEGER NOT NULL,
    due INTEGER NOT NULL,
    until INTEGER,
    incarnation INTEGER,
    claim INTEGER,
    reason TEXT,
    died INTEGER,
    record BLOB NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX tourbillon_keys ON tourbillon_timers (namespace, key) WHERE owns_key;
CREATE INDEX tourbillon_by_due ON tourbillon_timers (phase, due, id);
CREATE INDEX tourbillon_by_namespace ON tourbillon_timers (namespace, phase, due, id);
CREATE INDEX tourbillon_leased ON tourbillon_timers (until, id) WHERE phase = 1;
CREATE INDEX tourbillon_parked ON tourbillon_timers (reason, due, id) WHERE phase = 2;
CREATE INDEX tourbillon_dead ON tourbillon_timers (died, id) WHERE phase = 3;

CREATE TABLE tourbillon_labels (
    namespace TEXT NOT NULL,
    label TEXT NOT NULL,
    id BLOB NOT NULL,
    PRIMARY KEY (namespace, label, id)
) WITHOUT ROWID;

-- Ids of ended timers that their creators chose. A creation that is repeated before `until` makes no second timer.
CREATE TABLE tourbillon_remembered (id BLOB NOT NULL PRIMARY KEY, until INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX tourbillon_remembered_until ON tourbillon_remembered (until);

-- Deliveries that ended in a transaction of the program's. The runtime's own end of such a delivery is no error.
CREATE TABLE tourbillon_ends (
    id BLOB NOT NULL PRIMARY KEY,
    incarnation INTEGER NOT NULL,
    claim INTEGER NOT NULL,
    next BLOB,
    skipped INTEGER NOT NULL,
    until INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX tourbillon_ends_until ON tourbillon_ends (until);

-- Records that could not be read.
CREATE TABLE tourbillon_set_aside (id BLOB NOT NULL, record BLOB NOT NULL, at INTEGER NOT NULL);

CREATE TABLE tourbillon_counts (
    namespace TEXT NOT NULL,
    phase INTEGER NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (namespace, phase)
) WITHOUT ROWID;
CREATE TRIGGER tourbillon_inserted AFTER INSERT ON tourbillon_timers BEGIN
    INSERT INTO tourbillon_counts VALUES (new.namespace, new.phase, 1) ON CONFLICT DO UPDATE SET count = count + 1;
END;
CREATE TRIGGER tourbillon_deleted AFTER DELETE ON tourbillon_timers BEGIN
    UPDATE tourbillon_counts SET count = count - 1 WHERE namespace = old.namespace AND phase = old.phase;
    DELETE FROM tourbillon_counts WHERE namespace = old.namespace AND phase = old.phase AND count = 0;
END;
CREATE TRIGGER tourbillon_moved AFTER UPDATE OF phase, namespace ON tourbillon_timers
WHEN old.phase <> new.phase OR old.namespace <> new.namespace BEGIN
    UPDATE tourbillon_counts SET count = count - 1 WHERE namespace = old.namespace AND phase = old.phase;
    DELETE FROM tourbillon_counts WHERE namespace = old.namespace AND phase = old.phase AND count = 0;
    INSERT INTO tourbillon_counts VALUES (new.namespace, new.phase, 1) ON CONFLICT DO UPDATE SET count = count + 1;
END;

CREATE TABLE tourbillon_meta (name TEXT NOT NULL PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO tourbillon_meta VALUES ('syncs', 0);
