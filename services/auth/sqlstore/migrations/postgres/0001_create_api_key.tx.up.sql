CREATE TABLE sys_api_key (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    name TEXT COLLATE "C" NOT NULL,
    prefix TEXT COLLATE "C" NOT NULL,
    hash TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C",
    organization_id TEXT COLLATE "C",
    scopes TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    last_used_at BIGINT,
    revoked_at BIGINT
);

CREATE UNIQUE INDEX sys_api_key_hash_key ON sys_api_key (hash);

CREATE INDEX sys_api_key_organization_idx ON sys_api_key (organization_id, created_at, id);
