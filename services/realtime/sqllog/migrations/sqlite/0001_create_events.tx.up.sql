-- AUTOINCREMENT: the number of a removed event must not be given out again.
CREATE TABLE sys_event (
    sequence        INTEGER PRIMARY KEY AUTOINCREMENT,
    partition       INTEGER NOT NULL,
    id              TEXT NOT NULL,
    type            TEXT NOT NULL,
    object          TEXT NOT NULL,
    record_id       TEXT NOT NULL,
    matched         INTEGER NOT NULL,
    changes_json    TEXT,
    before_json     TEXT,
    after_json      TEXT,
    user_id         TEXT NOT NULL,
    organization_id TEXT NOT NULL,
    occurred_at     BIGINT NOT NULL,
    appended_at     BIGINT NOT NULL
);

CREATE TABLE sys_event_consumer (
    name             TEXT NOT NULL,
    first_partition  INTEGER NOT NULL,
    last_partition   INTEGER NOT NULL,
    position         TEXT NOT NULL,
    enabled          INTEGER NOT NULL,
    failure_event_id TEXT,
    failure_sequence INTEGER,
    failure_attempts INTEGER,
    failure_error    TEXT,
    failure_since    BIGINT,
    updated_at       BIGINT NOT NULL,
    PRIMARY KEY (name, first_partition)
);
