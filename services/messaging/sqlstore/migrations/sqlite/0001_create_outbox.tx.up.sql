CREATE TABLE sys_http_target (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    source TEXT NOT NULL,
    target_key TEXT NOT NULL,
    organization_id TEXT,
    state TEXT NOT NULL,
    reason TEXT,
    max_concurrency INTEGER NOT NULL DEFAULT 0,
    rate_per_second REAL NOT NULL DEFAULT 0,
    rate_burst INTEGER NOT NULL DEFAULT 0,
    retry_policy TEXT,
    serial INTEGER NOT NULL DEFAULT 0,
    signature_scheme TEXT,
    secret_sealed TEXT,
    previous_secret_sealed TEXT,
    previous_until INTEGER,
    auth_sealed TEXT,
    failing_since INTEGER,
    last_success_at INTEGER,
    version INTEGER NOT NULL DEFAULT 1,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);

CREATE UNIQUE INDEX sys_http_target_key
    ON sys_http_target (source, target_key, COALESCE(organization_id, ''));

CREATE TABLE sys_http_delivery (
    id TEXT NOT NULL PRIMARY KEY,
    source TEXT NOT NULL,
    ref_id TEXT,
    target_key TEXT NOT NULL,
    target_id INTEGER NOT NULL,
    dedup_key TEXT NOT NULL,
    label TEXT,
    url TEXT NOT NULL,
    method TEXT NOT NULL,
    headers_json TEXT,
    signature TEXT,
    signing_secret TEXT,
    timeout_ms INTEGER NOT NULL,
    payload_json TEXT NOT NULL,
    partition_key INTEGER NOT NULL,
    order_seq INTEGER NOT NULL,
    order_key INTEGER,
    block_on_retry INTEGER NOT NULL DEFAULT 0,
    status TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    round INTEGER NOT NULL DEFAULT 0,
    claimed_by TEXT,
    claimed_at INTEGER,
    claim_token TEXT,
    claim_expires_at INTEGER,
    crash_count INTEGER NOT NULL DEFAULT 0,
    sent_alone INTEGER NOT NULL DEFAULT 0,
    next_retry_at INTEGER,
    last_attempted_at INTEGER,
    response_code INTEGER,
    response_body TEXT,
    response_truncated INTEGER NOT NULL DEFAULT 0,
    error TEXT,
    parked INTEGER NOT NULL DEFAULT 0,
    notify_finished INTEGER NOT NULL DEFAULT 0,
    expires_at INTEGER,
    finished_at INTEGER,
    ended_as TEXT,
    event_id TEXT,
    run_id TEXT,
    step_id TEXT,
    organization_id TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);

CREATE UNIQUE INDEX sys_http_delivery_dedup
    ON sys_http_delivery (source, COALESCE(organization_id, ''), dedup_key);

-- Claims change none of the columns that an index names, so that they write no
-- index: rows in flight stay in the index of what is due until they end.
CREATE INDEX sys_http_delivery_due
    ON sys_http_delivery (target_id, COALESCE(next_retry_at, 0), order_seq) WHERE finished_at IS NULL;

CREATE INDEX sys_http_delivery_order
    ON sys_http_delivery (order_key, order_seq) WHERE finished_at IS NULL AND order_key IS NOT NULL;

CREATE INDEX sys_http_delivery_created
    ON sys_http_delivery (created_at, id);

CREATE TABLE sys_http_attempt (
    id TEXT NOT NULL PRIMARY KEY,
    delivery_id TEXT NOT NULL,
    round INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    node TEXT,
    started_at INTEGER NOT NULL,
    duration_us INTEGER NOT NULL,
    dns_us INTEGER NOT NULL,
    connect_us INTEGER NOT NULL,
    tls_us INTEGER NOT NULL,
    first_byte_us INTEGER NOT NULL,
    remote_addr TEXT,
    request_headers TEXT,
    response_code INTEGER,
    response_headers TEXT,
    response_body TEXT,
    response_truncated INTEGER NOT NULL DEFAULT 0,
    location_host TEXT,
    error_class TEXT,
    error TEXT,
    organization_id TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) WITHOUT ROWID;
