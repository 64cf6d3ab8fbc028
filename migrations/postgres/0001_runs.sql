-- What quorate remembers, and the promises that these tables keep whoever writes:
--
--   one row per (job, due, attempt)      the unique constraint of runs
--   one running run per lock             the primary key of live, which triggers
--                                        on runs keep in step
--   a run that has ended never changes   a trigger on runs, steps and output
--   a fence is never granted twice       fences only grows
--
-- Locks are always taken in the order fences, live, runs.

CREATE TABLE quorate.jobs (
    name     text PRIMARY KEY,
    schedule text        NOT NULL,
    since    timestamptz NOT NULL -- ticks are accounted for from here on
);

CREATE TABLE quorate.replicas (
    name     text PRIMARY KEY,
    revision text        NOT NULL,
    started  timestamptz NOT NULL,
    seen     timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE quorate.fences (
    lock  text PRIMARY KEY,
    fence bigint NOT NULL -- the last that was granted
) WITH (fillfactor = 50); -- room to update a row in place

-- Runs are partitioned by the month of due, so that old ones are dropped and not
-- deleted. A partitioned table has no index across partitions: what must hold
-- across them stands in live.
CREATE SEQUENCE quorate.run_id;

CREATE TABLE quorate.runs (
    id          bigint      NOT NULL DEFAULT nextval('quorate.run_id'),
    job         text        NOT NULL,
    due         timestamptz NOT NULL,
    attempt     integer     NOT NULL CHECK (attempt >= 1),
    trigger     text        NOT NULL CHECK (trigger <> ''),
    status      text        NOT NULL CHECK (status IN ('running', 'succeeded', 'failed', 'skipped', 'missed', 'unknown')),
    reason      text        NOT NULL DEFAULT '',
    error       text        NOT NULL DEFAULT '',
    lock        text        NOT NULL,
    fence       bigint      NOT NULL DEFAULT 0,
    replica     text        NOT NULL,
    revision    text        NOT NULL,
    started     timestamptz,
    finished    timestamptz,
    lease_until timestamptz, -- of a running run: see live
    votes       integer     NOT NULL DEFAULT 0,
    masters     integer     NOT NULL DEFAULT 0,
    granted_us  bigint      NOT NULL DEFAULT 0,
    lowest_us   bigint      NOT NULL DEFAULT 0,
    left_us     bigint      NOT NULL DEFAULT 0,
    extensions  integer     NOT NULL DEFAULT 0,
    CONSTRAINT runs_pkey PRIMARY KEY (id, due),
    CONSTRAINT runs_tick UNIQUE (job, due, attempt),
    CONSTRAINT runs_ended CHECK ((status = 'running') = (finished IS NULL)),
    CONSTRAINT runs_begun CHECK ((status IN ('skipped', 'missed')) = (started IS NULL)),
    CONSTRAINT runs_fenced CHECK ((started IS NULL) = (fence = 0))
) PARTITION BY RANGE (due);

CREATE INDEX runs_job ON quorate.runs (job, id);

CREATE TABLE quorate.steps (
    run      bigint      NOT NULL,
    due      timestamptz NOT NULL,
    idx      integer     NOT NULL,
    name     text        NOT NULL,
    kind     text        NOT NULL,
    status   text        NOT NULL CHECK (status IN ('running', 'succeeded', 'failed', 'skipped', 'missed', 'unknown')),
    started  timestamptz,
    finished timestamptz,
    rows     bigint      NOT NULL DEFAULT 0,
    error    text        NOT NULL DEFAULT '',
    PRIMARY KEY (run, due, idx)
) PARTITION BY RANGE (due);

-- What steps printed, apart from them so that history stays small.
CREATE TABLE quorate.output (
    run  bigint      NOT NULL,
    due  timestamptz NOT NULL,
    idx  integer     NOT NULL,
    text text        NOT NULL CHECK (octet_length(text) <= 65536),
    PRIMARY KEY (run, due, idx)
) PARTITION BY RANGE (due);

-- A due time whose month has no partition lands here. Months are made ahead of
-- time (make_months), so that is a backfill of long ago, or a cluster that slept
-- for months. To make the month on the claim's own path instead would let a tick
-- wait behind any long reader of history: DDL needs a lock that readers block.
CREATE TABLE quorate.runs_default   PARTITION OF quorate.runs   DEFAULT;
CREATE TABLE quorate.steps_default  PARTITION OF quorate.steps  DEFAULT;
CREATE TABLE quorate.output_default PARTITION OF quorate.output DEFAULT;

-- The running runs: one per lock. Leases are renewed here, so that a run's own
-- row is written twice in its life, when it begins and when it ends.
CREATE TABLE quorate.live (
    lock        text PRIMARY KEY,
    run         bigint      NOT NULL UNIQUE,
    due         timestamptz NOT NULL,
    replica     text        NOT NULL,
    lease_until timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE FUNCTION quorate.run_begins() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO quorate.live (lock, run, due, replica, lease_until)
    VALUES (new.lock, new.id, new.due, new.replica, new.lease_until);
    RETURN NULL;
END $$;

CREATE FUNCTION quorate.run_ends() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM quorate.live l WHERE l.run = new.id;
    RETURN NULL;
END $$;

CREATE FUNCTION quorate.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'what % keeps of a run that has ended never changes', TG_TABLE_NAME
        USING ERRCODE = 'integrity_constraint_violation';
END $$;

-- Whoever draws an id holds this lock until it commits, shared. A reader who takes
-- it alone for an instant knows that every id drawn before is visible or dead.
CREATE FUNCTION quorate.ids_in_flight() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(quorate.ids_lock());
    RETURN NULL;
END $$;

CREATE FUNCTION quorate.ids_lock() RETURNS bigint IMMUTABLE LANGUAGE sql AS 'SELECT 8173254061::bigint';

CREATE TRIGGER ids BEFORE INSERT ON quorate.runs
    FOR EACH STATEMENT EXECUTE FUNCTION quorate.ids_in_flight();
CREATE TRIGGER begins AFTER INSERT ON quorate.runs
    FOR EACH ROW WHEN (new.status = 'running') EXECUTE FUNCTION quorate.run_begins();
CREATE TRIGGER ends AFTER UPDATE ON quorate.runs
    FOR EACH ROW WHEN (new.status <> 'running') EXECUTE FUNCTION quorate.run_ends();
CREATE TRIGGER forward BEFORE UPDATE ON quorate.runs
    FOR EACH ROW WHEN (old.status <> 'running'
        OR (old.id, old.job, old.due, old.attempt, old.trigger, old.lock, old.fence, old.replica, old.revision, old.started)
           IS DISTINCT FROM
           (new.id, new.job, new.due, new.attempt, new.trigger, new.lock, new.fence, new.replica, new.revision, new.started))
    EXECUTE FUNCTION quorate.refuse_change();
CREATE TRIGGER forward BEFORE UPDATE ON quorate.steps
    FOR EACH ROW EXECUTE FUNCTION quorate.refuse_change();
CREATE TRIGGER forward BEFORE UPDATE ON quorate.output
    FOR EACH ROW EXECUTE FUNCTION quorate.refuse_change();
CREATE TRIGGER grows BEFORE UPDATE ON quorate.fences
    FOR EACH ROW WHEN (new.fence <= old.fence OR new.lock <> old.lock) EXECUTE FUNCTION quorate.refuse_change();

-- make_months makes the partitions of this month and the two after it, and moves
-- what the default partition holds of them. Any replica may call it at any time;
-- where a long reader is in the way it gives up after a moment, for the next call.
CREATE FUNCTION quorate.make_months() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    month timestamp;
    low   timestamptz;
    high  timestamptz;
    whole text;
    part  text;
BEGIN
    IF NOT pg_try_advisory_xact_lock(8173254062) THEN
        RETURN; -- another replica is at it
    END IF;
    PERFORM set_config('lock_timeout', '250ms', true);
    FOR ahead IN 0..2 LOOP
        month := date_trunc('month', now() AT TIME ZONE 'UTC') + make_interval(months => ahead);
        low   := month AT TIME ZONE 'UTC';
        high  := (month + interval '1 month') AT TIME ZONE 'UTC';
        FOREACH whole IN ARRAY ARRAY['runs', 'steps', 'output'] LOOP
            part := whole || to_char(month, '_YYYY_MM');
            CONTINUE WHEN to_regclass('quorate.' || part) IS NOT NULL;
            EXECUTE format('CREATE TABLE quorate.%I (LIKE quorate.%I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', part, whole);
            -- Alone on the default partition, so that no run ends while it moves.
            EXECUTE format('LOCK TABLE quorate.%I IN ACCESS EXCLUSIVE MODE', whole || '_default');
            EXECUTE format('WITH moved AS (DELETE FROM quorate.%I WHERE due >= $1 AND due < $2 RETURNING *)
                            INSERT INTO quorate.%I SELECT * FROM moved', whole || '_default', part) USING low, high;
            EXECUTE format('ALTER TABLE quorate.%I ATTACH PARTITION quorate.%I FOR VALUES FROM (%L) TO (%L)', whole, part, low, high);
        END LOOP;
    END LOOP;
EXCEPTION WHEN lock_not_available THEN
    RETURN;
END $$;
