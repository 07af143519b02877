-- additive
CREATE TABLE sys_data_object (
    name       TEXT PRIMARY KEY NOT NULL,
    definition TEXT NOT NULL,
    version    INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    updated_by TEXT
);
