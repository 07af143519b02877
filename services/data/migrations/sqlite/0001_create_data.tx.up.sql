CREATE TABLE sys_data_field (
    object_name TEXT NOT NULL,
    field_name  TEXT NOT NULL,
    kind        TEXT NOT NULL,
    PRIMARY KEY (object_name, field_name)
);
CREATE TABLE sys_data_counter (
    object_name TEXT NOT NULL,
    field_name  TEXT NOT NULL,
    value       INTEGER NOT NULL,
    PRIMARY KEY (object_name, field_name)
);
CREATE TABLE sys_secret (
    id          TEXT PRIMARY KEY,
    object_name TEXT NOT NULL,
    record_id   TEXT NOT NULL,
    field_name  TEXT NOT NULL,
    sealed      TEXT NOT NULL,
    created_at  INTEGER NOT NULL
);
CREATE INDEX sys_secret_record ON sys_secret (object_name, record_id);
