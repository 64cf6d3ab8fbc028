-- The guard tables of quorate on a MySQL or MariaDB that SQL steps work on. Both
-- live in the transaction of the step: the fence refuses a run whose lock was
-- granted again, the effect row refuses a second commit of the same step of the
-- same tick. Names compare byte by byte; instants are UTC, to the microsecond.
CREATE TABLE IF NOT EXISTS quorate_fence (
    lock_name varchar(200) NOT NULL PRIMARY KEY,
    fence     bigint       NOT NULL
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS quorate_effect (
    job     varchar(100) NOT NULL,
    due     datetime(6)  NOT NULL,
    step    varchar(200) NOT NULL,
    fence   bigint       NOT NULL,
    run_id  bigint       NOT NULL,
    done_at datetime(6)  NOT NULL DEFAULT (utc_timestamp(6)),
    PRIMARY KEY (job, due, step)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
