CREATE TABLE sys_webhook_version (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    version BIGINT  NOT NULL
);

INSERT INTO sys_webhook_version (id, version) VALUES (1, 0);

CREATE TABLE sys_webhook_change (
    version    BIGINT PRIMARY KEY,
    webhook_id TEXT COLLATE "C" NOT NULL
);
