CREATE TABLE sys_automation_flow (
    name TEXT COLLATE "C" PRIMARY KEY,
    version BIGINT NOT NULL,
    enabled BOOLEAN NOT NULL DEFAULT TRUE,
    source TEXT COLLATE "C" NOT NULL,
    customized BOOLEAN NOT NULL DEFAULT FALSE,
    deleted BOOLEAN NOT NULL DEFAULT FALSE,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

CREATE TABLE sys_automation_version (
    name TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    definition_sealed TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (name, version)
);

CREATE TABLE sys_automation_revision (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    revision BIGINT NOT NULL
);

INSERT INTO sys_automation_revision (id, revision) VALUES (1, 0);

CREATE TABLE sys_automation_run (
    id TEXT COLLATE "C" PRIMARY KEY,
    flow_name TEXT COLLATE "C" NOT NULL,
    flow_version BIGINT NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    trigger_type TEXT COLLATE "C" NOT NULL,
    object_name TEXT COLLATE "C",
    record_id TEXT COLLATE "C",
    event_id TEXT COLLATE "C",
    user_id TEXT COLLATE "C",
    organization_id TEXT COLLATE "C",
    started_at BIGINT NOT NULL,
    completed_at BIGINT,
    duration_ms BIGINT NOT NULL DEFAULT 0,
    error TEXT COLLATE "C",
    error_node TEXT COLLATE "C",
    steps_json TEXT COLLATE "C",
    summary_json TEXT COLLATE "C",
    output_json TEXT COLLATE "C",
    variables_json TEXT COLLATE "C",
    trigger_json TEXT COLLATE "C" NOT NULL,
    state_json TEXT COLLATE "C",
    resume_json TEXT COLLATE "C",
    wait_kind TEXT COLLATE "C",
    wait_key TEXT COLLATE "C",
    wake_at BIGINT,
    dedup_key TEXT COLLATE "C",
    queue_key TEXT COLLATE "C",
    queue_seq BIGINT NOT NULL DEFAULT 0,
    depth BIGINT NOT NULL DEFAULT 0,
    crash_count BIGINT NOT NULL DEFAULT 0,
    claimed_by TEXT COLLATE "C",
    claim_token TEXT COLLATE "C",
    claim_expires_at BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

CREATE UNIQUE INDEX sys_automation_run_dedup ON sys_automation_run (dedup_key) WHERE dedup_key IS NOT NULL;
CREATE INDEX sys_automation_run_log ON sys_automation_run (flow_name, started_at, id);
CREATE INDEX sys_automation_run_open ON sys_automation_run (status, created_at) WHERE completed_at IS NULL;
CREATE INDEX sys_automation_run_queue ON sys_automation_run (queue_key, queue_seq) WHERE completed_at IS NULL AND queue_key IS NOT NULL;
CREATE INDEX sys_automation_run_wait ON sys_automation_run (wait_key) WHERE completed_at IS NULL AND wait_key IS NOT NULL;
CREATE INDEX sys_automation_run_done ON sys_automation_run (completed_at) WHERE completed_at IS NOT NULL;

CREATE TABLE sys_automation_schedule (
    flow_name TEXT COLLATE "C" PRIMARY KEY,
    source TEXT COLLATE "C" NOT NULL,
    next_at BIGINT,
    fired_at BIGINT
);

CREATE TABLE sys_automation_change (
    object_name TEXT COLLATE "C" NOT NULL,
    record_id TEXT COLLATE "C" NOT NULL,
    stamp TEXT COLLATE "C" NOT NULL,
    info_json TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (object_name, record_id, stamp)
);

CREATE INDEX sys_automation_change_age ON sys_automation_change (created_at);
