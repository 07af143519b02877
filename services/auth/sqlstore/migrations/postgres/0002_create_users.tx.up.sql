CREATE TABLE sys_user (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    name TEXT COLLATE "C" NOT NULL,
    email TEXT COLLATE "C" NOT NULL,
    email_verified BOOLEAN NOT NULL,
    image TEXT COLLATE "C",
    disabled_at BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

CREATE UNIQUE INDEX sys_user_email_key ON sys_user (email);

CREATE TABLE sys_account (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    user_id TEXT COLLATE "C" NOT NULL REFERENCES sys_user (id),
    provider TEXT COLLATE "C" NOT NULL,
    subject TEXT COLLATE "C" NOT NULL,
    password_hash TEXT COLLATE "C",
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

CREATE UNIQUE INDEX sys_account_subject_key ON sys_account (provider, subject);

CREATE INDEX sys_account_user_idx ON sys_account (user_id);

CREATE TABLE sys_organization (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    name TEXT COLLATE "C" NOT NULL,
    slug TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

CREATE UNIQUE INDEX sys_organization_slug_key ON sys_organization (slug);

INSERT INTO sys_organization (id, name, slug, created_at, updated_at)
VALUES ('default', 'Default', 'default', (EXTRACT(EPOCH FROM now()) * 1000)::bigint, (EXTRACT(EPOCH FROM now()) * 1000)::bigint);

CREATE TABLE sys_member (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    organization_id TEXT COLLATE "C",
    user_id TEXT COLLATE "C" NOT NULL REFERENCES sys_user (id),
    roles TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE UNIQUE INDEX sys_member_user_key ON sys_member (user_id, COALESCE(organization_id, ''));

CREATE INDEX sys_member_organization_idx ON sys_member (organization_id, created_at, id);

CREATE TABLE sys_role (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    organization_id TEXT COLLATE "C",
    name TEXT COLLATE "C" NOT NULL,
    label TEXT COLLATE "C" NOT NULL,
    permissions TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

CREATE UNIQUE INDEX sys_role_name_key ON sys_role (COALESCE(organization_id, ''), name);

CREATE TABLE sys_invitation (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    organization_id TEXT COLLATE "C",
    email TEXT COLLATE "C" NOT NULL,
    roles TEXT COLLATE "C" NOT NULL,
    inviter_id TEXT COLLATE "C",
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);

CREATE UNIQUE INDEX sys_invitation_email_key ON sys_invitation (email, COALESCE(organization_id, ''));

CREATE TABLE sys_session (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    user_id TEXT COLLATE "C" NOT NULL REFERENCES sys_user (id),
    token_hash TEXT COLLATE "C" NOT NULL,
    organization_id TEXT COLLATE "C",
    ip TEXT COLLATE "C" NOT NULL,
    user_agent TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);

CREATE UNIQUE INDEX sys_session_token_key ON sys_session (token_hash);

CREATE INDEX sys_session_user_idx ON sys_session (user_id, created_at);

CREATE INDEX sys_session_expires_idx ON sys_session (expires_at);

CREATE TABLE sys_auth_attempt (
    attempt_key TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    hits BIGINT NOT NULL,
    ends_at BIGINT NOT NULL
);

CREATE INDEX sys_auth_attempt_ends_idx ON sys_auth_attempt (ends_at);

CREATE TABLE sys_auth_pending (
    hash TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    kind TEXT COLLATE "C" NOT NULL,
    data TEXT COLLATE "C" NOT NULL,
    expires_at BIGINT
);

CREATE TABLE sys_auth_value (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    value TEXT COLLATE "C" NOT NULL
);

CREATE TABLE sys_audit_log (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    organization_id TEXT COLLATE "C",
    created_at BIGINT NOT NULL,
    user_id TEXT COLLATE "C",
    key_id TEXT COLLATE "C",
    action TEXT COLLATE "C" NOT NULL,
    target_type TEXT COLLATE "C",
    target_id TEXT COLLATE "C",
    ip TEXT COLLATE "C",
    detail_json TEXT COLLATE "C"
);

CREATE INDEX sys_audit_log_time_idx ON sys_audit_log (organization_id, created_at, id);
