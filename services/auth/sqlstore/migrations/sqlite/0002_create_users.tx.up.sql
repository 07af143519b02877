CREATE TABLE sys_user (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    email TEXT NOT NULL,
    email_verified BOOLEAN NOT NULL,
    image TEXT,
    disabled_at INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);

CREATE UNIQUE INDEX sys_user_email_key ON sys_user (email);

CREATE TABLE sys_account (
    id TEXT NOT NULL PRIMARY KEY,
    user_id TEXT NOT NULL REFERENCES sys_user (id),
    provider TEXT NOT NULL,
    subject TEXT NOT NULL,
    password_hash TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);

CREATE UNIQUE INDEX sys_account_subject_key ON sys_account (provider, subject);

CREATE INDEX sys_account_user_idx ON sys_account (user_id);

CREATE TABLE sys_organization (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    slug TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);

CREATE UNIQUE INDEX sys_organization_slug_key ON sys_organization (slug);

INSERT INTO sys_organization (id, name, slug, created_at, updated_at)
VALUES ('default', 'Default', 'default', unixepoch() * 1000, unixepoch() * 1000);

CREATE TABLE sys_member (
    id TEXT NOT NULL PRIMARY KEY,
    organization_id TEXT,
    user_id TEXT NOT NULL REFERENCES sys_user (id),
    roles TEXT NOT NULL,
    created_at INTEGER NOT NULL
);

CREATE UNIQUE INDEX sys_member_user_key ON sys_member (user_id, COALESCE(organization_id, ''));

CREATE INDEX sys_member_organization_idx ON sys_member (organization_id, created_at, id);

CREATE TABLE sys_role (
    id TEXT NOT NULL PRIMARY KEY,
    organization_id TEXT,
    name TEXT NOT NULL,
    label TEXT NOT NULL,
    permissions TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);

CREATE UNIQUE INDEX sys_role_name_key ON sys_role (COALESCE(organization_id, ''), name);

CREATE TABLE sys_invitation (
    id TEXT NOT NULL PRIMARY KEY,
    organization_id TEXT,
    email TEXT NOT NULL,
    roles TEXT NOT NULL,
    inviter_id TEXT,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
);

CREATE UNIQUE INDEX sys_invitation_email_key ON sys_invitation (email, COALESCE(organization_id, ''));

CREATE TABLE sys_session (
    id TEXT NOT NULL PRIMARY KEY,
    user_id TEXT NOT NULL REFERENCES sys_user (id),
    token_hash TEXT NOT NULL,
    organization_id TEXT,
    ip TEXT NOT NULL,
    user_agent TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
);

CREATE UNIQUE INDEX sys_session_token_key ON sys_session (token_hash);

CREATE INDEX sys_session_user_idx ON sys_session (user_id, created_at);

CREATE INDEX sys_session_expires_idx ON sys_session (expires_at);

CREATE TABLE sys_auth_attempt (
    attempt_key TEXT NOT NULL PRIMARY KEY,
    hits INTEGER NOT NULL,
    ends_at INTEGER NOT NULL
);

CREATE INDEX sys_auth_attempt_ends_idx ON sys_auth_attempt (ends_at);

CREATE TABLE sys_auth_pending (
    hash TEXT NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL,
    data TEXT NOT NULL,
    expires_at INTEGER
);

CREATE TABLE sys_auth_value (
    name TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
);

CREATE TABLE sys_audit_log (
    id TEXT NOT NULL PRIMARY KEY,
    organization_id TEXT,
    created_at INTEGER NOT NULL,
    user_id TEXT,
    key_id TEXT,
    action TEXT NOT NULL,
    target_type TEXT,
    target_id TEXT,
    ip TEXT,
    detail_json TEXT
);

CREATE INDEX sys_audit_log_time_idx ON sys_audit_log (organization_id, created_at, id);
