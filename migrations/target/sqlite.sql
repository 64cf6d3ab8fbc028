-- The guard tables of quorate in an SQLite file that SQL steps work on. Both live
-- in the transaction of the step: the fence refuses a run whose lock was granted
-- again, the effect row refuses a second commit of the same step of the same tick.
-- Instants are RFC 3339 text in UTC.
CREATE TABLE IF NOT EXISTS quorate_fence (
    lock_name TEXT PRIMARY KEY NOT NULL,
    fence     INTEGER NOT NULL
) STRICT;

CREATE TABLE IF NOT EXISTS quorate_effect (
    job     TEXT    NOT NULL,
    due     TEXT    NOT NULL,
    step    TEXT    NOT NULL,
    fence   INTEGER NOT NULL,
    run_id  INTEGER NOT NULL,
    done_at TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    PRIMARY KEY (job, due, step)
) STRICT;
