-- CACHE 1: a session must not hold numbers back, or a later write of a record
-- could get a lower number than an earlier one.
CREATE SEQUENCE sys_event_sequence AS BIGINT CACHE 1;

CREATE TABLE sys_event (
    sequence        BIGINT PRIMARY KEY,
    xid             XID8 NOT NULL,
    partition       SMALLINT NOT NULL,
    id              TEXT COLLATE "C" NOT NULL,
    type            TEXT COLLATE "C" NOT NULL,
    object          TEXT COLLATE "C" NOT NULL,
    record_id       TEXT COLLATE "C" NOT NULL,
    matched         BIGINT NOT NULL,
    changes_json    TEXT COLLATE "C",
    before_json     TEXT COLLATE "C",
    after_json      TEXT COLLATE "C",
    user_id         TEXT COLLATE "C" NOT NULL,
    organization_id TEXT COLLATE "C" NOT NULL,
    occurred_at     BIGINT NOT NULL,
    appended_at     BIGINT NOT NULL
);

CREATE INDEX sys_event_xid_idx ON sys_event (xid, sequence);

CREATE TABLE sys_event_consumer (
    name             TEXT COLLATE "C" NOT NULL,
    first_partition  INTEGER NOT NULL,
    last_partition   INTEGER NOT NULL,
    position         TEXT COLLATE "C" NOT NULL,
    enabled          BOOLEAN NOT NULL,
    failure_event_id TEXT COLLATE "C",
    failure_sequence BIGINT,
    failure_attempts BIGINT,
    failure_error    TEXT COLLATE "C",
    failure_since    BIGINT,
    updated_at       BIGINT NOT NULL,
    PRIMARY KEY (name, first_partition)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- The two parts of a delta, in the order of sequences. They are functions for
-- their settings: where the planner expects few rows, because statistics are
-- missing or old, it would rather sort all rows of the delta than walk an index
-- and stop at max_rows.
CREATE FUNCTION sys_event_fresh(max_rows BIGINT, first_partition INTEGER, last_partition INTEGER,
    above BIGINT, up_to BIGINT, base PG_SNAPSHOT, target PG_SNAPSHOT)
RETURNS SETOF sys_event LANGUAGE sql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
    SELECT * FROM sys_event WHERE sequence > $4 AND sequence <= $5 AND partition BETWEEN $2 AND $3
    AND NOT pg_visible_in_snapshot(xid, $6) AND pg_visible_in_snapshot(xid, $7)
    ORDER BY sequence LIMIT $1
$$;

CREATE FUNCTION sys_event_late(max_rows BIGINT, first_partition INTEGER, last_partition INTEGER,
    above BIGINT, up_to BIGINT, xids XID8[])
RETURNS SETOF sys_event LANGUAGE sql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
    SELECT e.* FROM unnest($6) AS x(xid) CROSS JOIN LATERAL (
        SELECT * FROM sys_event WHERE (xid, sequence) > (x.xid, $4) AND (xid, sequence) <= (x.xid, $5)
        AND partition BETWEEN $2 AND $3 ORDER BY xid, sequence LIMIT $1
    ) e ORDER BY e.sequence LIMIT $1
$$;
