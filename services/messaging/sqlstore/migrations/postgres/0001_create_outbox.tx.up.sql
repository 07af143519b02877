CREATE TABLE sys_http_target (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id TEXT COLLATE "C" NOT NULL UNIQUE,
    source TEXT COLLATE "C" NOT NULL,
    target_key TEXT COLLATE "C" NOT NULL,
    organization_id TEXT COLLATE "C",
    state TEXT COLLATE "C" NOT NULL,
    reason TEXT COLLATE "C",
    max_concurrency BIGINT NOT NULL DEFAULT 0,
    rate_per_second DOUBLE PRECISION NOT NULL DEFAULT 0,
    rate_burst BIGINT NOT NULL DEFAULT 0,
    retry_policy TEXT COLLATE "C",
    serial BOOLEAN NOT NULL DEFAULT FALSE,
    signature_scheme TEXT COLLATE "C",
    secret_sealed TEXT COLLATE "C",
    previous_secret_sealed TEXT COLLATE "C",
    previous_until BIGINT,
    auth_sealed TEXT COLLATE "C",
    failing_since BIGINT,
    last_success_at BIGINT,
    version BIGINT NOT NULL DEFAULT 1,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

CREATE UNIQUE INDEX sys_http_target_key
    ON sys_http_target (source, target_key, COALESCE(organization_id, ''));

CREATE TABLE sys_http_delivery (
    id TEXT COLLATE "C" PRIMARY KEY,
    source TEXT COLLATE "C" NOT NULL,
    ref_id TEXT COLLATE "C",
    target_key TEXT COLLATE "C" NOT NULL,
    target_id BIGINT NOT NULL,
    dedup_key TEXT COLLATE "C" NOT NULL,
    label TEXT COLLATE "C",
    url TEXT COLLATE "C" NOT NULL,
    method TEXT COLLATE "C" NOT NULL,
    headers_json TEXT COLLATE "C",
    signature TEXT COLLATE "C",
    signing_secret TEXT COLLATE "C",
    timeout_ms BIGINT NOT NULL,
    payload_json TEXT COLLATE "C" NOT NULL,
    partition_key BIGINT NOT NULL,
    order_seq BIGINT NOT NULL,
    order_key BIGINT,
    block_on_retry BOOLEAN NOT NULL DEFAULT FALSE,
    status TEXT COLLATE "C" NOT NULL,
    attempts BIGINT NOT NULL DEFAULT 0,
    round BIGINT NOT NULL DEFAULT 0,
    claimed_by TEXT COLLATE "C",
    claimed_at BIGINT,
    claim_token TEXT COLLATE "C",
    claim_expires_at BIGINT,
    crash_count BIGINT NOT NULL DEFAULT 0,
    sent_alone BOOLEAN NOT NULL DEFAULT FALSE,
    next_retry_at BIGINT,
    last_attempted_at BIGINT,
    response_code BIGINT,
    response_body TEXT COLLATE "C",
    response_truncated BOOLEAN NOT NULL DEFAULT FALSE,
    error TEXT COLLATE "C",
    parked BOOLEAN NOT NULL DEFAULT FALSE,
    notify_finished BOOLEAN NOT NULL DEFAULT FALSE,
    expires_at BIGINT,
    finished_at BIGINT,
    ended_as TEXT COLLATE "C",
    event_id TEXT COLLATE "C",
    run_id TEXT COLLATE "C",
    step_id TEXT COLLATE "C",
    organization_id TEXT COLLATE "C",
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

CREATE UNIQUE INDEX sys_http_delivery_dedup
    ON sys_http_delivery (source, COALESCE(organization_id, ''), dedup_key);

-- Claims change none of the columns that an index names, so that they write no
-- index: rows in flight stay in the index of what is due until they end.
CREATE INDEX sys_http_delivery_due
    ON sys_http_delivery (target_id, COALESCE(next_retry_at, 0), order_seq, partition_key) WHERE finished_at IS NULL;

CREATE INDEX sys_http_delivery_order
    ON sys_http_delivery (order_key, order_seq) WHERE finished_at IS NULL AND order_key IS NOT NULL;

CREATE INDEX sys_http_delivery_created
    ON sys_http_delivery (created_at NULLS FIRST, id);

CREATE TABLE sys_http_attempt (
    id TEXT COLLATE "C" PRIMARY KEY,
    delivery_id TEXT COLLATE "C" NOT NULL,
    round BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    node TEXT COLLATE "C",
    started_at BIGINT NOT NULL,
    duration_us BIGINT NOT NULL,
    dns_us BIGINT NOT NULL,
    connect_us BIGINT NOT NULL,
    tls_us BIGINT NOT NULL,
    first_byte_us BIGINT NOT NULL,
    remote_addr TEXT COLLATE "C",
    request_headers TEXT COLLATE "C",
    response_code BIGINT,
    response_headers TEXT COLLATE "C",
    response_body TEXT COLLATE "C",
    response_truncated BOOLEAN NOT NULL DEFAULT FALSE,
    location_host TEXT COLLATE "C",
    error_class TEXT COLLATE "C",
    error TEXT COLLATE "C",
    organization_id TEXT COLLATE "C",
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
