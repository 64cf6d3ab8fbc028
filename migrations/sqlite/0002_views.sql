-- For people who write SQL: columns here are stable, and documented in
-- docs/HISTORY.md. The tables beneath may change with any release.

CREATE VIEW history AS
SELECT r.id AS run_id, r.job, r.due, r.attempt, r."trigger", r.status, r.reason, r.error, r.lock,
       CASE WHEN r.started IS NULL THEN 0 ELSE r.id END AS fence, r.replica, r.revision, r.started, r.finished,
       (julianday(r.finished) - julianday(r.started)) * 86400.0 AS seconds,
       (julianday(r.started) - julianday(r.due)) * 86400.0 AS late_seconds
  FROM runs r;

CREATE VIEW lock_evidence AS
SELECT r.id AS run_id, r.job, r.due, r.lock, r.id AS fence, r.votes, r.masters,
       r.granted_us / 1000.0 AS validity_granted_ms,
       r.lowest_us / 1000.0 AS validity_lowest_ms,
       r.left_us / 1000.0 AS validity_left_ms,
       r.extensions
  FROM runs r
 WHERE r.started IS NOT NULL;

CREATE VIEW missed AS
SELECT r.id AS run_id, r.job, r.due, r.reason, r.error, r.finished AS recorded
  FROM runs r
 WHERE r.status = 'missed';
