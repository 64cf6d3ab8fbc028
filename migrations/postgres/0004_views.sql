-- For people who write SQL: columns here are stable, and documented in
-- docs/HISTORY.md. The tables beneath may change with any release.

CREATE VIEW quorate.history AS
SELECT r.id AS run_id, r.job, r.due, r.attempt, r.trigger, r.status::text AS status, r.reason, r.error, r.lock, CASE WHEN r.started IS NULL THEN 0 ELSE r.id END AS fence,
       r.replica, r.revision, r.started, r.finished,
       extract(epoch FROM r.finished - r.started)::double precision AS seconds,
       extract(epoch FROM r.started - r.due)::double precision AS late_seconds
  FROM quorate.runs r;

CREATE VIEW quorate.lock_evidence AS
SELECT r.id AS run_id, r.job, r.due, r.lock, r.id AS fence, r.votes, r.masters,
       r.granted_us / 1000.0::double precision AS validity_granted_ms,
       r.lowest_us / 1000.0::double precision AS validity_lowest_ms,
       r.left_us / 1000.0::double precision AS validity_left_ms,
       r.extensions
  FROM quorate.runs r
 WHERE r.started IS NOT NULL;

CREATE VIEW quorate.missed AS
SELECT r.id AS run_id, r.job, r.due, r.reason, r.error, r.finished AS recorded
  FROM quorate.runs r
 WHERE r.status = 'missed';

CREATE VIEW quorate.job_health AS
WITH last AS (
    SELECT job, max(finished) FILTER (WHERE status = 'succeeded') AS last_success,
           max(id) FILTER (WHERE status = 'succeeded') AS last_success_id
      FROM quorate.runs
     GROUP BY job
)
SELECT r.job, last.last_success,
       count(*) FILTER (WHERE r.status IN ('failed', 'missed', 'unknown') AND r.id > coalesce(last.last_success_id, 0)) AS failure_streak,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM r.finished - r.started)) AS p50_seconds,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY extract(epoch FROM r.finished - r.started)) AS p95_seconds,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY extract(epoch FROM r.started - r.due)) AS p95_late_seconds
  FROM quorate.runs r JOIN last USING (job)
 GROUP BY r.job, last.last_success;
