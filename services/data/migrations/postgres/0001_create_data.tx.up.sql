CREATE TABLE sys_data_field (
    object_name TEXT COLLATE "C" NOT NULL,
    field_name  TEXT COLLATE "C" NOT NULL,
    kind        TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (object_name, field_name)
);
CREATE TABLE sys_data_counter (
    object_name TEXT COLLATE "C" NOT NULL,
    field_name  TEXT COLLATE "C" NOT NULL,
    value       BIGINT NOT NULL,
    PRIMARY KEY (object_name, field_name)
);
CREATE TABLE sys_secret (
    id          TEXT COLLATE "C" PRIMARY KEY,
    object_name TEXT COLLATE "C" NOT NULL,
    record_id   TEXT COLLATE "C" NOT NULL,
    field_name  TEXT COLLATE "C" NOT NULL,
    sealed      TEXT COLLATE "C" NOT NULL,
    created_at  BIGINT NOT NULL
);
CREATE INDEX sys_secret_record ON sys_secret (object_name, record_id);
