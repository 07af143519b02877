CREATE TABLE sys_node (
    token TEXT COLLATE "C" PRIMARY KEY,
    name TEXT COLLATE "C" NOT NULL,
    process TEXT COLLATE "C" NOT NULL,
    lease_until BIGINT NOT NULL,
    started_at BIGINT NOT NULL
);

CREATE TABLE sys_lease (
    range_number BIGINT PRIMARY KEY,
    token TEXT COLLATE "C"
);

INSERT INTO sys_lease (range_number) SELECT generate_series(0, 15);
