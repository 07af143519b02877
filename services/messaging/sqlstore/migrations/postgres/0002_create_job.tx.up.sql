CREATE TABLE sys_http_job (
    id TEXT COLLATE "C" PRIMARY KEY,
    filter_json TEXT COLLATE "C" NOT NULL,
    as_of BIGINT NOT NULL,
    per_second BIGINT NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    matched BIGINT NOT NULL,
    redelivered BIGINT NOT NULL DEFAULT 0,
    skipped BIGINT NOT NULL DEFAULT 0,
    cursor_at BIGINT NOT NULL DEFAULT 0,
    cursor_id TEXT COLLATE "C" NOT NULL DEFAULT '',
    claim_token TEXT COLLATE "C",
    claim_expires_at BIGINT,
    error TEXT COLLATE "C",
    scoped BOOLEAN NOT NULL,
    organization_id TEXT COLLATE "C",
    created_by TEXT COLLATE "C",
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    finished_at BIGINT
);

CREATE INDEX sys_http_job_running ON sys_http_job (created_at, id) WHERE status = 'running';
