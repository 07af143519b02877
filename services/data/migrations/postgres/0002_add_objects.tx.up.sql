-- additive
CREATE TABLE sys_data_object (
    name       TEXT COLLATE "C" PRIMARY KEY,
    definition TEXT COLLATE "C" NOT NULL,
    version    BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    updated_by TEXT COLLATE "C"
);
