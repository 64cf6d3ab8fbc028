-- What quorate remembers, and the promises that these tables keep whoever writes:
--
--   one row per (job, due, attempt)      the unique constraint of runs
--   one running run per lock             the primary key of locks, which triggers
--                                        on runs keep in step
--   a run that has ended never changes   a trigger on runs, steps and output
--   a fence is never granted twice       it is the id of the run, which is drawn
--                                        while the row of the lock is held
--
-- Row locks are always taken in this order: locks by name, then runs by tick.

CREATE TYPE quorate.status AS ENUM ('running', 'succeeded', 'failed', 'skipped', 'missed', 'unknown');

CREATE TABLE quorate.jobs (
    name     text PRIMARY KEY,
    schedule text        NOT NULL,
    since    timestamptz NOT NULL -- ticks are accounted for from here on
);

-- The revision of the jobs that alone may claim. No row: any may.
CREATE TABLE quorate.active (
    one      boolean PRIMARY KEY DEFAULT true CHECK (one),
    revision text        NOT NULL,
    since    timestamptz NOT NULL
);

CREATE TABLE quorate.replicas (
    name     text PRIMARY KEY,
    revision text        NOT NULL,
    started  timestamptz NOT NULL,
    seen     timestamptz NOT NULL
) WITH (fillfactor = 50); -- room to update a row in place, here and below

-- Runs are partitioned by the month of due, so that old ones are dropped and not
-- deleted. A partitioned table has no index across partitions: what must hold
-- across them stands in locks.
--
-- The wide columns stand first and the texts last, so that nothing is lost between
-- them. A row is written twice, when a run begins and when it ends, and the second
-- time in place where its page has room: no index knows a column that changes then.
-- Only what went wrong enters the indexes of trouble.
CREATE SEQUENCE quorate.run_id;

CREATE TABLE quorate.runs (
    id          bigint      NOT NULL DEFAULT nextval('quorate.run_id'),
    due         timestamptz NOT NULL,
    started     timestamptz,
    finished    timestamptz,
    lease_until timestamptz, -- of a running run: see locks
    granted_us  bigint      NOT NULL DEFAULT 0,
    lowest_us   bigint      NOT NULL DEFAULT 0,
    left_us     bigint      NOT NULL DEFAULT 0,
    attempt     integer     NOT NULL,
    votes       integer     NOT NULL DEFAULT 0,
    masters     integer     NOT NULL DEFAULT 0,
    extensions  integer     NOT NULL DEFAULT 0,
    status      quorate.status NOT NULL,
    trouble     quorate.status GENERATED ALWAYS AS (CASE WHEN status > 'succeeded' THEN status END) STORED,
    job         text        NOT NULL,
    trigger     text        NOT NULL,
    reason      text        NOT NULL DEFAULT '',
    error       text        NOT NULL DEFAULT '',
    lock        text        NOT NULL,
    replica     text        NOT NULL,
    revision    text        NOT NULL,
    token       text        NOT NULL DEFAULT '', -- who claimed it, while it runs
    CONSTRAINT runs_pkey PRIMARY KEY (id, due),
    CONSTRAINT runs_tick UNIQUE (job, due, attempt),
    -- One check and not several: each is prepared anew by every statement.
    CONSTRAINT runs_status CHECK ((status = 'running') = (finished IS NULL) AND (status IN ('skipped', 'missed')) = (started IS NULL))
) PARTITION BY RANGE (due);

CREATE INDEX runs_job ON quorate.runs (job, id);
CREATE INDEX runs_trouble ON quorate.runs (trouble, id) WHERE trouble IS NOT NULL;
CREATE INDEX runs_job_trouble ON quorate.runs (job, trouble, id) WHERE trouble IS NOT NULL;

CREATE TABLE quorate.steps (
    run      bigint      NOT NULL,
    due      timestamptz NOT NULL,
    started  timestamptz,
    finished timestamptz,
    rows     bigint      NOT NULL DEFAULT 0,
    idx      integer     NOT NULL,
    name     text        NOT NULL,
    kind     text        NOT NULL,
    status   quorate.status NOT NULL,
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

-- The locks, and the run that runs under each. All who want a lock queue up at its
-- row; leases are renewed here. A row whose run is null means nothing, and may go
-- at any time: it is kept because the lock will be wanted again.
CREATE TABLE quorate.locks (
    lock        text PRIMARY KEY,
    run         bigint,
    due         timestamptz,
    replica     text,
    lease_until timestamptz NOT NULL DEFAULT clock_timestamp() -- of a row without a run: when it was let go
) WITH (fillfactor = 50);

CREATE FUNCTION quorate.run_begins() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE quorate.locks l SET run = new.id, due = new.due, replica = new.replica, lease_until = new.lease_until
     WHERE l.lock = new.lock AND l.run IS NULL;
    IF NOT FOUND THEN -- no such row: made now; one with a run: the primary key refuses
        INSERT INTO quorate.locks (lock, run, due, replica, lease_until)
        VALUES (new.lock, new.id, new.due, new.replica, new.lease_until);
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION quorate.run_ends() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE quorate.locks l SET run = NULL, due = NULL, replica = NULL, lease_until = clock_timestamp()
     WHERE l.lock = new.lock AND l.run = new.id;
    RETURN NULL;
END $$;

CREATE FUNCTION quorate.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'what % keeps of a run never changes once it has ended, nor what it began with', TG_TABLE_NAME
        USING ERRCODE = 'integrity_constraint_violation';
END $$;

-- Whoever draws an id holds this lock until it commits, shared. A reader who takes
-- it alone for an instant knows that every id drawn before is visible or dead.
CREATE FUNCTION quorate.ids_in_flight() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    locked text := pg_advisory_xact_lock_shared(8173254061);
BEGIN
    RETURN NULL;
END $$;

CREATE TRIGGER ids BEFORE INSERT ON quorate.runs
    FOR EACH STATEMENT EXECUTE FUNCTION quorate.ids_in_flight();
CREATE TRIGGER begins AFTER INSERT ON quorate.runs
    FOR EACH ROW WHEN (new.status = 'running') EXECUTE FUNCTION quorate.run_begins();
CREATE TRIGGER ends AFTER UPDATE ON quorate.runs
    FOR EACH ROW WHEN (new.status <> 'running') EXECUTE FUNCTION quorate.run_ends();
CREATE TRIGGER forward BEFORE UPDATE ON quorate.runs
    FOR EACH ROW WHEN (old.status <> 'running') EXECUTE FUNCTION quorate.refuse_change();
CREATE TRIGGER fixed BEFORE UPDATE OF id, job, due, attempt, trigger, lock, replica, revision, started ON quorate.runs
    FOR EACH ROW EXECUTE FUNCTION quorate.refuse_change();
CREATE TRIGGER forward BEFORE UPDATE ON quorate.steps
    FOR EACH ROW EXECUTE FUNCTION quorate.refuse_change();
CREATE TRIGGER forward BEFORE UPDATE ON quorate.output
    FOR EACH ROW EXECUTE FUNCTION quorate.refuse_change();

-- make_months makes the partitions of this month and the two after it, and moves
-- what the default partition holds of them. Any replica may call it at any time,
-- with no right of its own to make tables; where a long reader is in the way it
-- gives up after a moment, for the next call.
CREATE FUNCTION quorate.make_months() RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
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
            EXECUTE format('CREATE TABLE quorate.%I (LIKE quorate.%I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING GENERATED)', part, whole);
            -- Alone on the default partition, so that no run ends while it moves.
            EXECUTE format('LOCK TABLE quorate.%I IN ACCESS EXCLUSIVE MODE', whole || '_default');
            PERFORM quorate.move(whole || '_default', part, low, high);
            EXECUTE format('ALTER TABLE quorate.%I ATTACH PARTITION quorate.%I FOR VALUES FROM (%L) TO (%L)', whole, part, low, high);
        END LOOP;
    END LOOP;
EXCEPTION WHEN lock_not_available THEN
    RETURN;
END $$;

-- move takes the rows of a span of due from one table into another.
CREATE FUNCTION quorate.move(source text, target text, low timestamptz, high timestamptz) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    columns text;
BEGIN
    SELECT string_agg(quote_ident(a.attname), ', ') INTO columns
      FROM pg_attribute a
     WHERE a.attrelid = ('quorate.' || target)::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '';
    EXECUTE format('WITH moved AS (DELETE FROM quorate.%I WHERE due >= $1 AND due < $2 RETURNING %s)
                    INSERT INTO quorate.%I (%s) SELECT %s FROM moved', source, columns, target, columns, columns) USING low, high;
END $$;
