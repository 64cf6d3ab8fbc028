-- The path of a run through the store: claim, renew, finish, and what becomes of
-- a run whose replica is gone. Each is one call, so one round trip and one
-- transaction, for any number of runs: a hundred wait for the disk once, as one
-- does. What a caller must tell apart comes back as a verdict and not as an
-- exception, so that no run has a part in what becomes of another.
--
-- Time is clock_timestamp() throughout: a call may have waited for a lock, and
-- now() would still say when it began to wait.
--
-- The functions have the rights of whoever owns the schema, so that a replica
-- needs none but to call them. Their settings are for their plans: made once, and
-- every row found by an index, however small its table was at that time.

-- lose closes the running run of a lock whose lease has ended. The caller has
-- locked the lock's row, and seen there that it has.
CREATE FUNCTION quorate.lose(held quorate.locks) RETURNS SETOF quorate.runs LANGUAGE sql AS $$
    UPDATE quorate.runs r
       SET status = 'unknown', reason = 'replica_lost', finished = clock_timestamp(), lease_until = held.lease_until, token = '',
           error = format('replica %s did not renew its lease, which ended at %s: nobody can say how far the run got',
                          r.replica, to_char(held.lease_until AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))
     WHERE r.id = held.run AND r.due = held.due AND r.status = 'running'
    RETURNING r.*
$$;

-- claim makes ticks the caller's; the arrays have an element for each, and no two
-- the same lock. Rows that another has locked are waited for as long as _patience
-- says, or as the session does where it is empty. The verdict on the tick that wanted a lock is
--   granted:  the run is new, or it is the one that a claim with this token began
--   claimed:  the run is the one that the tick has already
--   overlap:  the run is the one that holds the lock
--   revision: another revision of the jobs is the active one; there is no run
CREATE FUNCTION quorate.claim(
    _patience text, _job text[], _due timestamptz[], _attempt integer[], _trigger text[], _lock text[], _replica text[], _revision text[],
    _token text[], _lease interval[], _votes integer[], _masters integer[], _granted_us bigint[], _lowest_us bigint[],
    _left_us bigint[], _extensions integer[]
) RETURNS TABLE (wanted text, verdict text, id bigint, status text, replica text, lock text, started timestamptz, lease_until timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    -- An assignment runs a function without the cost of a statement.
    patience text := CASE WHEN _patience <> '' THEN set_config('lock_timeout', _patience, true) END;
    -- Whoever makes another revision the active one waits for us, or we for them.
    in_line  text := pg_advisory_xact_lock_shared(8173254061);
    valid    text;
    ready    integer;
    nth      integer;
    held     quorate.locks;
    holders  quorate.locks[];
    answered text[] := '{}';
BEGIN
    SELECT a.revision INTO valid FROM quorate.active a WHERE a.one;

    -- All who want these locks queue up here; what follows, one does at a time.
    LOOP
        SELECT count(*), array_agg(l.*) FILTER (WHERE l.run IS NOT NULL) INTO ready, holders
          FROM (SELECT * FROM quorate.locks l WHERE l.lock = ANY (_lock) ORDER BY l.lock FOR UPDATE) l;
        EXIT WHEN ready = cardinality(_lock);
        INSERT INTO quorate.locks (lock) SELECT w FROM unnest(_lock) w ORDER BY w ON CONFLICT DO NOTHING;
    END LOOP;

    FOREACH held IN ARRAY coalesce(holders, '{}') LOOP
        nth := array_position(_lock, held.lock);
        UPDATE quorate.runs r SET votes = _votes[nth], masters = _masters[nth], granted_us = _granted_us[nth]
         WHERE r.id = held.run AND r.due = held.due AND r.status = 'running' AND r.token = _token[nth] AND r.token <> ''
           AND (r.job, r.due, r.attempt) = (_job[nth], _due[nth], _attempt[nth])
        RETURNING r.lock, 'granted', r.id, r.status, r.replica, r.lock, r.started
             INTO wanted, verdict, id, status, replica, lock, started;
        IF FOUND THEN
            lease_until := clock_timestamp() + _lease[nth];
            UPDATE quorate.locks l SET lease_until = claim.lease_until WHERE l.lock = held.lock;
            answered := answered || wanted;
            RETURN NEXT;
        ELSIF held.lease_until <= clock_timestamp() THEN
            PERFORM quorate.lose(held);
        END IF;
    END LOOP;

    verdict := 'granted';
    FOR wanted, id, status, replica, lock, started, lease_until IN
        INSERT INTO quorate.runs AS r (job, due, attempt, trigger, status, lock, replica, revision, token, started, lease_until,
                                       votes, masters, granted_us, lowest_us, left_us, extensions)
        SELECT w.job, w.due, w.attempt, w.trigger, 'running', w.lock, w.replica, w.revision, w.token, clock_timestamp(),
               clock_timestamp() + w.lease, w.votes, w.masters, w.granted_us, w.lowest_us, w.left_us, w.extensions
          FROM unnest(_job, _due, _attempt, _trigger, _lock, _replica, _revision, _token, _lease,
                      _votes, _masters, _granted_us, _lowest_us, _left_us, _extensions)
            AS w (job, due, attempt, trigger, lock, replica, revision, token, lease,
                  votes, masters, granted_us, lowest_us, left_us, extensions)
          JOIN quorate.locks l ON l.lock = w.lock
         WHERE l.run IS NULL AND w.revision = coalesce(valid, w.revision)
         ORDER BY w.job, w.due, w.attempt -- as all do who insert ticks
        ON CONFLICT DO NOTHING
        RETURNING r.lock, r.id, r.status, r.replica, r.lock, r.started, r.lease_until
    LOOP
        answered := answered || wanted;
        RETURN NEXT;
    END LOOP;

    FOR nth IN 1 .. cardinality(_lock) LOOP
        EXIT WHEN cardinality(answered) = cardinality(_lock);
        wanted := _lock[nth];
        CONTINUE WHEN wanted = ANY (answered);
        verdict := 'claimed';
        SELECT r.id, r.status, r.replica, r.lock, r.started, r.lease_until INTO id, status, replica, lock, started, lease_until
          FROM quorate.runs r WHERE r.job = _job[nth] AND r.due = _due[nth] AND r.attempt = _attempt[nth];
        IF NOT FOUND THEN
            verdict := CASE WHEN _revision[nth] = valid OR valid IS NULL THEN 'overlap' ELSE 'revision' END;
            SELECT l.run, 'running', l.replica, l.lock, NULL, l.lease_until INTO id, status, replica, lock, started, lease_until
              FROM quorate.locks l WHERE l.lock = wanted;
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

-- renew moves the leases of a replica's running runs, and returns those it moved.
CREATE FUNCTION quorate.renew(_replica text, _run bigint[], _lock text[], _lease interval[]) RETURNS SETOF bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    PERFORM FROM quorate.locks l WHERE l.lock = ANY (_lock) ORDER BY l.lock FOR UPDATE;
    RETURN QUERY
        UPDATE quorate.locks l SET lease_until = clock_timestamp() + n.lease
          FROM unnest(_run, _lock, _lease) AS n (run, lock, lease)
         WHERE l.lock = n.lock AND l.run = n.run AND l.replica = _replica
        RETURNING l.run;
END $$;

-- finish writes how runs ended, with their steps. The verdict is finished, also
-- where a run was finished in just this way before; fenced where it has ended
-- otherwise; none where there is no such run.
CREATE FUNCTION quorate.finish(
    _patience text, _run bigint[], _due timestamptz[], _fence bigint[], _lock text[], _status text[], _reason text[], _error text[],
    _lowest_us bigint[], _left_us bigint[], _extensions integer[],
    _step_run bigint[], _step_due timestamptz[], _step_idx integer[], _step_name text[], _step_kind text[], _step_status text[],
    _step_started timestamptz[], _step_finished timestamptz[], _step_rows bigint[], _step_error text[], _step_output text[]
) RETURNS TABLE (id bigint, verdict text, status text, reason text, finished timestamptz, lease_until timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    patience text := CASE WHEN _patience <> '' THEN set_config('lock_timeout', _patience, true) END;
    ended    bigint[] := '{}';
BEGIN
    PERFORM FROM quorate.locks l WHERE l.lock = ANY (_lock) ORDER BY l.lock FOR UPDATE;

    verdict := 'finished';
    FOR id, status, reason, finished, lease_until IN
        UPDATE quorate.runs r
           SET status = f.status::quorate.status, reason = f.reason, error = f.error, finished = clock_timestamp(), token = '',
               lease_until = coalesce(l.lease_until, r.lease_until),
               lowest_us = f.lowest_us, left_us = f.left_us, extensions = f.extensions
          FROM unnest(_run, _due, _fence, _lock, _status, _reason, _error, _lowest_us, _left_us, _extensions)
            AS f (run, due, fence, lock, status, reason, error, lowest_us, left_us, extensions)
          LEFT JOIN quorate.locks l ON l.lock = f.lock AND l.run = f.run
         WHERE r.id = f.run AND r.id = f.fence AND r.due = f.due AND r.status = 'running'
        RETURNING r.id, r.status, r.reason, r.finished, r.lease_until
    LOOP
        ended := ended || id;
        RETURN NEXT;
    END LOOP;

    INSERT INTO quorate.steps (run, due, idx, name, kind, status, started, finished, rows, error)
    SELECT s.run, s.due, s.idx, s.name, s.kind, s.status::quorate.status, s.started, s.finished, s.rows, s.error
      FROM unnest(_step_run, _step_due, _step_idx, _step_name, _step_kind, _step_status,
                           _step_started, _step_finished, _step_rows, _step_error)
        AS s (run, due, idx, name, kind, status, started, finished, rows, error)
     WHERE s.run = ANY (ended);
    IF '' <> ANY (_step_output) THEN
        INSERT INTO quorate.output (run, due, idx, text)
        SELECT s.run, s.due, s.idx, s.output FROM unnest(_step_run, _step_due, _step_idx, _step_output) AS s (run, due, idx, output)
         WHERE s.run = ANY (ended) AND s.output <> '';
    END IF;

    IF cardinality(ended) < cardinality(_run) THEN
        RETURN QUERY
            SELECT f.run, CASE WHEN r.id IS NULL THEN 'none'
                               WHEN (r.id, r.status::text, r.reason, r.error) = (f.fence, f.status, f.reason, f.error) THEN 'finished'
                               ELSE 'fenced' END, r.status::text, r.reason, r.finished, r.lease_until
              FROM unnest(_run, _due, _fence, _status, _reason, _error) AS f (run, due, fence, status, reason, error)
              LEFT JOIN quorate.runs r ON r.id = f.run AND r.due = f.due
             WHERE f.run <> ALL (ended);
    END IF;
END $$;

-- reap closes the running runs whose lease has ended. A row that another replica
-- has locked just now is being renewed, finished or closed there.
CREATE FUNCTION quorate.reap() RETURNS SETOF quorate.runs
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT lost.*
      FROM (SELECT l FROM quorate.locks l WHERE l.run IS NOT NULL AND l.lease_until <= clock_timestamp()
             ORDER BY l.lock FOR UPDATE SKIP LOCKED) late,
           LATERAL quorate.lose(late.l) lost
$$;

-- record writes ticks that never ran. One that has a row keeps it.
CREATE FUNCTION quorate.record(_ended jsonb) RETURNS SETOF quorate.runs
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO quorate.runs (job, due, attempt, trigger, status, reason, error, lock, replica, revision, finished)
    SELECT e.job, e.due, e.attempt, e.trigger, e.status::quorate.status, e.reason, e.error, e.lock, e.replica, e.revision, clock_timestamp()
      FROM jsonb_to_recordset(_ended) AS e(job text, due timestamptz, attempt integer, trigger text, status text,
                                           reason text, error text, lock text, replica text, revision text)
     ORDER BY e.job, e.due, e.attempt -- as all do who insert ticks
    ON CONFLICT DO NOTHING
    RETURNING *
$$;
