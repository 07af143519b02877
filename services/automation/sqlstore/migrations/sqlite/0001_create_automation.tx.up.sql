CREATE TABLE sys_automation_flow (
    name TEXT PRIMARY KEY,
    version INTEGER NOT NULL,
    enabled INTEGER NOT NULL DEFAULT 1,
    source TEXT NOT NULL,
    customized INTEGER NOT NULL DEFAULT 0,
    deleted INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);

CREATE TABLE sys_automation_version (
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    definition_sealed TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (name, version)
);

CREATE TABLE sys_automation_revision (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    revision INTEGER NOT NULL
);

INSERT INTO sys_automation_revision (id, revision) VALUES (1, 0);

CREATE TABLE sys_automation_run (
    id TEXT PRIMARY KEY,
    flow_name TEXT NOT NULL,
    flow_version INTEGER NOT NULL,
    status TEXT NOT NULL,
    trigger_type TEXT NOT NULL,
    object_name TEXT,
    record_id TEXT,
    event_id TEXT,
    user_id TEXT,
    organization_id TEXT,
    started_at INTEGER NOT NULL,
    completed_at INTEGER,
    duration_ms INTEGER NOT NULL DEFAULT 0,
    error TEXT,
    error_node TEXT,
    steps_json TEXT,
    summary_json TEXT,
    output_json TEXT,
    variables_json TEXT,
    trigger_json TEXT NOT NULL,
    state_json TEXT,
    resume_json TEXT,
    wait_kind TEXT,
    wait_key TEXT,
    wake_at INTEGER,
    dedup_key TEXT,
    queue_key TEXT,
    queue_seq INTEGER NOT NULL DEFAULT 0,
    depth INTEGER NOT NULL DEFAULT 0,
    crash_count INTEGER NOT NULL DEFAULT 0,
    claimed_by TEXT,
    claim_token TEXT,
    claim_expires_at INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);

CREATE UNIQUE INDEX sys_automation_run_dedup ON sys_automation_run (dedup_key) WHERE dedup_key IS NOT NULL;
CREATE INDEX sys_automation_run_log ON sys_automation_run (flow_name, started_at, id);
CREATE INDEX sys_automation_run_open ON sys_automation_run (status, created_at) WHERE completed_at IS NULL;
CREATE INDEX sys_automation_run_queue ON sys_automation_run (queue_key, queue_seq) WHERE completed_at IS NULL AND queue_key IS NOT NULL;
CREATE INDEX sys_automation_run_wait ON sys_automation_run (wait_key) WHERE completed_at IS NULL AND wait_key IS NOT NULL;
CREATE INDEX sys_automation_run_done ON sys_automation_run (completed_at) WHERE completed_at IS NOT NULL;

CREATE TABLE sys_automation_schedule (
    flow_name TEXT PRIMARY KEY,
    source TEXT NOT NULL,
    next_at INTEGER,
    fired_at INTEGER
);

CREATE TABLE sys_automation_change (
    object_name TEXT NOT NULL,
    record_id TEXT NOT NULL,
    stamp TEXT NOT NULL,
    info_json TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (object_name, record_id, stamp)
);

CREATE INDEX sys_automation_change_age ON sys_automation_change (created_at);
