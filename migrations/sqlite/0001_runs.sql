-- What quorate remembers, in one file. It means the same as the Postgres body:
--
--   one row per (job, due, attempt)      the unique constraint of runs
--   one running run per lock             the partial unique index runs_running
--   a run that has ended never changes   a trigger on runs, steps and output
--   a fence is never granted twice       it is the id of the run, which only grows
--
-- Instants are text, 2026-11-21T08:00:00.000000Z: always UTC, always that wide, so
-- that text order is time order. A claim is a transaction that began IMMEDIATE, so
-- nothing else is written between what it reads and what it writes.

CREATE TABLE jobs (
    name     TEXT PRIMARY KEY NOT NULL,
    schedule TEXT NOT NULL,
    since    TEXT NOT NULL -- ticks are accounted for from here on
) STRICT;

CREATE TABLE replicas (
    name     TEXT PRIMARY KEY NOT NULL,
    revision TEXT NOT NULL,
    started  TEXT NOT NULL,
    seen     TEXT NOT NULL
) STRICT;

-- The revision of the jobs that alone may claim. No row: any may.
CREATE TABLE active (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    revision TEXT NOT NULL,
    since    TEXT NOT NULL
) STRICT;

CREATE TABLE runs (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    job         TEXT    NOT NULL,
    due         TEXT    NOT NULL CHECK (length(due) = 27),
    attempt     INTEGER NOT NULL CHECK (attempt >= 1),
    "trigger"   TEXT    NOT NULL CHECK ("trigger" <> ''),
    status      TEXT    NOT NULL CHECK (status IN ('running', 'succeeded', 'failed', 'skipped', 'missed', 'unknown')),
    reason      TEXT    NOT NULL DEFAULT '',
    error       TEXT    NOT NULL DEFAULT '',
    lock        TEXT    NOT NULL,
    replica     TEXT    NOT NULL,
    revision    TEXT    NOT NULL,
    started     TEXT,
    finished    TEXT,
    lease_until TEXT,
    votes       INTEGER NOT NULL DEFAULT 0,
    masters     INTEGER NOT NULL DEFAULT 0,
    granted_us  INTEGER NOT NULL DEFAULT 0,
    lowest_us   INTEGER NOT NULL DEFAULT 0,
    left_us     INTEGER NOT NULL DEFAULT 0,
    extensions  INTEGER NOT NULL DEFAULT 0,
    token       TEXT    NOT NULL DEFAULT '', -- who claimed it, while it runs
    CONSTRAINT runs_tick UNIQUE (job, due, attempt),
    CONSTRAINT runs_ended CHECK ((status = 'running') = (finished IS NULL)),
    CONSTRAINT runs_begun CHECK ((status IN ('skipped', 'missed')) = (started IS NULL))
) STRICT;

CREATE UNIQUE INDEX runs_running ON runs (lock) WHERE status = 'running';
CREATE INDEX runs_job ON runs (job, id);

CREATE TABLE steps (
    run      INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    idx      INTEGER NOT NULL,
    name     TEXT    NOT NULL,
    kind     TEXT    NOT NULL,
    status   TEXT    NOT NULL CHECK (status IN ('running', 'succeeded', 'failed', 'skipped', 'missed', 'unknown')),
    started  TEXT,
    finished TEXT,
    rows     INTEGER NOT NULL DEFAULT 0,
    error    TEXT    NOT NULL DEFAULT '',
    PRIMARY KEY (run, idx)
) STRICT, WITHOUT ROWID;

-- What steps printed, apart from them so that history stays small.
CREATE TABLE output (
    run  INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    idx  INTEGER NOT NULL,
    text TEXT    NOT NULL CHECK (length(CAST(text AS BLOB)) <= 65536),
    PRIMARY KEY (run, idx)
) STRICT;

CREATE TRIGGER runs_forward BEFORE UPDATE ON runs
WHEN old.status <> 'running'
  OR (old.id, old.job, old.due, old.attempt, old."trigger", old.lock, old.replica, old.revision, old.started)
     <> (new.id, new.job, new.due, new.attempt, new."trigger", new.lock, new.replica, new.revision, new.started)
BEGIN
    SELECT raise(ABORT, 'what runs keeps of a run that has ended never changes');
END;

CREATE TRIGGER steps_forward BEFORE UPDATE ON steps
BEGIN
    SELECT raise(ABORT, 'what steps keeps of a run that has ended never changes');
END;

CREATE TRIGGER output_forward BEFORE UPDATE ON output
BEGIN
    SELECT raise(ABORT, 'what output keeps of a run that has ended never changes');
END;
