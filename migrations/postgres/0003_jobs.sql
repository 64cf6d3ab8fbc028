-- What replicas tell about themselves and their jobs. As in 0002, the functions
-- have the rights that a replica need not have.

-- activate makes a revision the one that alone may claim. It waits for the claims
-- that are under way, and those that come wait for it.
CREATE FUNCTION quorate.activate(_revision text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(8173254061);
    INSERT INTO quorate.active AS a (revision, since) VALUES (_revision, clock_timestamp())
        ON CONFLICT (one) DO UPDATE SET revision = excluded.revision, since = excluded.since
     WHERE a.revision <> excluded.revision;
END $$;

-- register says how jobs are scheduled, and since when their ticks are accounted
-- for. Of a revision that is not the active one it takes nothing, and returns
-- nothing.
CREATE FUNCTION quorate.register(_revision text, _name text[], _schedule text[]) RETURNS SETOF quorate.jobs
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(8173254061);
    IF EXISTS (SELECT FROM quorate.active a WHERE a.revision <> _revision) THEN
        RETURN;
    END IF;
    -- In the order of names, so that two replicas do not wait for each other. What
    -- another one changes meanwhile is seen by the second statement.
    INSERT INTO quorate.jobs AS j (name, schedule, since)
    SELECT DISTINCT ON (n.name) n.name, n.schedule, clock_timestamp()
      FROM unnest(_name, _schedule) AS n (name, schedule)
     ORDER BY n.name
        ON CONFLICT (name) DO UPDATE SET schedule = excluded.schedule, since = excluded.since
     WHERE j.schedule <> excluded.schedule;
    RETURN QUERY SELECT j.* FROM quorate.jobs j WHERE j.name = ANY (_name) ORDER BY j.name;
END $$;

CREATE FUNCTION quorate.beat(_name text, _revision text, _started timestamptz) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO quorate.replicas (name, revision, started, seen) VALUES (_name, _revision, _started, clock_timestamp())
        ON CONFLICT (name) DO UPDATE SET revision = excluded.revision, started = excluded.started, seen = excluded.seen
$$;
