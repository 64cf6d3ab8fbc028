-- The path of a run through the store: claim, renew, finish, and what becomes of
-- a run whose replica is gone. Each is one call, so one round trip and one
-- transaction. What a caller must tell apart comes back as a verdict and not as
-- an exception, so that many claims can share one statement.
--
-- Time is clock_timestamp() throughout: a call may have waited for a lock, and
-- now() would still say when it began to wait.

-- lose closes a running run whose lease has ended. The caller has locked its row
-- in live, and seen there that it has.
CREATE FUNCTION quorate.lose(held quorate.live) RETURNS SETOF quorate.runs LANGUAGE sql AS $$
    UPDATE quorate.runs r
       SET status = 'unknown', reason = 'replica_lost', finished = clock_timestamp(), lease_until = held.lease_until,
           error = format('replica %s did not renew its lease, which ended at %s: nobody can say how far the run got',
                          r.replica, to_char(held.lease_until AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))
     WHERE r.id = held.run AND r.due = held.due AND r.status = 'running'
    RETURNING r.*
$$;

-- claim makes a tick the caller's. The verdict is
--   granted: run is the new row
--   claimed: run is the row that the tick has already
--   overlap: run is the run that holds the lock
CREATE FUNCTION quorate.claim(
    _job text, _due timestamptz, _attempt integer, _trigger text, _lock text, _replica text, _revision text,
    _lease interval, _votes integer, _masters integer, _granted_us bigint, _lowest_us bigint, _left_us bigint,
    _extensions integer
) RETURNS TABLE (verdict text, run quorate.runs) LANGUAGE plpgsql AS $$
DECLARE
    held   quorate.live;
    minted bigint;
BEGIN
    -- All who want this lock queue up here; what follows, one does at a time.
    PERFORM FROM quorate.fences f WHERE f.lock = _lock FOR UPDATE;
    IF NOT FOUND THEN
        INSERT INTO quorate.fences (lock, fence) VALUES (_lock, 0) ON CONFLICT DO NOTHING;
        PERFORM FROM quorate.fences f WHERE f.lock = _lock FOR UPDATE;
    END IF;

    verdict := 'claimed';
    SELECT * INTO run FROM quorate.runs r WHERE r.job = _job AND r.due = _due AND r.attempt = _attempt;
    IF FOUND THEN
        RETURN NEXT;
        RETURN;
    END IF;

    SELECT * INTO held FROM quorate.live l WHERE l.lock = _lock FOR UPDATE;
    IF FOUND AND held.lease_until > clock_timestamp() THEN
        verdict := 'overlap';
        SELECT * INTO run FROM quorate.runs r WHERE r.id = held.run AND r.due = held.due;
        RETURN NEXT;
        RETURN;
    ELSIF FOUND THEN
        PERFORM quorate.lose(held);
    END IF;

    UPDATE quorate.fences f SET fence = f.fence + 1 WHERE f.lock = _lock RETURNING f.fence INTO minted;
    INSERT INTO quorate.runs (job, due, attempt, trigger, status, lock, fence, replica, revision, started, lease_until,
                              votes, masters, granted_us, lowest_us, left_us, extensions)
    VALUES (_job, _due, _attempt, _trigger, 'running', _lock, minted, _replica, _revision, clock_timestamp(),
            clock_timestamp() + _lease, _votes, _masters, _granted_us, _lowest_us, _left_us, _extensions)
    ON CONFLICT DO NOTHING
    RETURNING * INTO run;
    IF FOUND THEN
        verdict := 'granted';
    ELSE -- claimed just now under another lock, by a replica whose config says so
        SELECT * INTO run FROM quorate.runs r WHERE r.job = _job AND r.due = _due AND r.attempt = _attempt;
    END IF;
    RETURN NEXT;
END $$;

-- renew moves the leases of a replica's running runs, and returns those it moved.
CREATE FUNCTION quorate.renew(_replica text, _runs bigint[], _lease interval) RETURNS SETOF bigint LANGUAGE sql AS $$
    WITH mine AS (
        SELECT l.run FROM quorate.live l WHERE l.run = ANY (_runs) AND l.replica = _replica ORDER BY l.lock FOR UPDATE
    )
    UPDATE quorate.live l SET lease_until = clock_timestamp() + _lease FROM mine WHERE l.run = mine.run RETURNING l.run
$$;

-- finish writes how a run ended. The verdict is finished, also where it was
-- finished in just this way before; else fenced. No row: there is no such run.
CREATE FUNCTION quorate.finish(
    _run bigint, _due timestamptz, _fence bigint, _status text, _reason text, _error text,
    _lowest_us bigint, _left_us bigint, _extensions integer, _steps jsonb
) RETURNS TABLE (verdict text, run quorate.runs) LANGUAGE plpgsql AS $$
DECLARE
    lease timestamptz;
BEGIN
    SELECT l.lease_until INTO lease FROM quorate.live l WHERE l.run = _run FOR UPDATE;
    UPDATE quorate.runs r
       SET status = _status, reason = _reason, error = _error, finished = clock_timestamp(),
           lease_until = coalesce(lease, r.lease_until),
           lowest_us = _lowest_us, left_us = _left_us, extensions = _extensions
     WHERE r.id = _run AND r.due = _due AND r.fence = _fence AND r.status = 'running'
    RETURNING * INTO run;
    IF NOT FOUND THEN
        SELECT * INTO run FROM quorate.runs r WHERE r.id = _run AND r.due = _due;
        IF FOUND THEN
            verdict := CASE WHEN (run.fence, run.status, run.reason, run.error) = (_fence, _status, _reason, _error)
                            THEN 'finished' ELSE 'fenced' END;
            RETURN NEXT;
        END IF;
        RETURN;
    END IF;

    INSERT INTO quorate.steps (run, due, idx, name, kind, status, started, finished, rows, error)
    SELECT _run, _due, s.idx, s.name, s.kind, s.status, s.started, s.finished, s.rows, s.error
      FROM jsonb_to_recordset(_steps) AS s(idx integer, name text, kind text, status text, started timestamptz,
                                           finished timestamptz, rows bigint, error text);
    INSERT INTO quorate.output (run, due, idx, text)
    SELECT _run, _due, s.idx, s.output FROM jsonb_to_recordset(_steps) AS s(idx integer, output text) WHERE s.output <> '';
    verdict := 'finished';
    RETURN NEXT;
END $$;

-- reap closes the running runs whose lease has ended. A row that another replica
-- has locked just now is being renewed, finished or closed there.
CREATE FUNCTION quorate.reap() RETURNS SETOF quorate.runs LANGUAGE sql AS $$
    SELECT lost.*
      FROM (SELECT l FROM quorate.live l WHERE l.lease_until <= clock_timestamp() ORDER BY l.lock FOR UPDATE SKIP LOCKED) late,
           LATERAL quorate.lose(late.l) lost
$$;

-- record writes ticks that never ran. One that has a row keeps it.
CREATE FUNCTION quorate.record(_ended jsonb) RETURNS SETOF quorate.runs LANGUAGE sql AS $$
    INSERT INTO quorate.runs (job, due, attempt, trigger, status, reason, error, lock, replica, revision, finished)
    SELECT e.job, e.due, e.attempt, e.trigger, e.status, e.reason, e.error, e.lock, e.replica, e.revision, clock_timestamp()
      FROM jsonb_to_recordset(_ended) AS e(job text, due timestamptz, attempt integer, trigger text, status text,
                                           reason text, error text, lock text, replica text, revision text)
     ORDER BY e.job, e.due, e.attempt -- two replicas that record the same ticks must not wait for each other
    ON CONFLICT DO NOTHING
    RETURNING *
$$;
