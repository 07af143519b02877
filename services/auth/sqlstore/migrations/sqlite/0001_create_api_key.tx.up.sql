CREATE TABLE sys_api_key (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    prefix TEXT NOT NULL,
    hash TEXT NOT NULL,
    user_id TEXT,
    organization_id TEXT,
    scopes TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    last_used_at BIGINT,
    revoked_at BIGINT
);

CREATE UNIQUE INDEX sys_api_key_hash_key ON sys_api_key (hash);

CREATE INDEX sys_api_key_organization_idx ON sys_api_key (organization_id, created_at, id);
