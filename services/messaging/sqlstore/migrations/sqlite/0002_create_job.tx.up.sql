CREATE TABLE sys_http_job (
    id TEXT PRIMARY KEY,
    filter_json TEXT NOT NULL,
    as_of INTEGER NOT NULL,
    per_second INTEGER NOT NULL,
    status TEXT NOT NULL,
    matched INTEGER NOT NULL,
    redelivered INTEGER NOT NULL DEFAULT 0,
    skipped INTEGER NOT NULL DEFAULT 0,
    cursor_at INTEGER NOT NULL DEFAULT 0,
    cursor_id TEXT NOT NULL DEFAULT '',
    claim_token TEXT,
    claim_expires_at INTEGER,
    error TEXT,
    scoped INTEGER NOT NULL,
    organization_id TEXT,
    created_by TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    finished_at INTEGER
);

CREATE INDEX sys_http_job_running ON sys_http_job (created_at, id) WHERE status = 'running';
