-- The guard tables of quorate on a Postgres that SQL steps work on. Both live in
-- the transaction of the step: the fence refuses a run whose lock was granted
-- again, the effect row refuses a second commit of the same step of the same tick.
CREATE TABLE IF NOT EXISTS quorate_fence (
    lock_name text PRIMARY KEY,
    fence     bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE IF NOT EXISTS quorate_effect (
    job     text        NOT NULL,
    due     timestamptz NOT NULL,
    step    text        NOT NULL,
    fence   bigint      NOT NULL,
    run_id  bigint      NOT NULL,
    done_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (job, due, step)
);
