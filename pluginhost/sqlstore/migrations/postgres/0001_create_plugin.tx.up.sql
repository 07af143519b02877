CREATE TABLE sys_plugin_value (
    plugin TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    value BYTEA NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (plugin, name)
);

CREATE TABLE sys_plugin_inbox (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    plugin TEXT COLLATE "C" NOT NULL,
    handler TEXT COLLATE "C" NOT NULL,
    event BYTEA NOT NULL
);

CREATE INDEX sys_plugin_inbox_handler_idx ON sys_plugin_inbox (plugin, handler, id);

CREATE TABLE sys_plugin_handler (
    plugin TEXT COLLATE "C" NOT NULL,
    handler TEXT COLLATE "C" NOT NULL,
    owner TEXT COLLATE "C" NOT NULL,
    leased_until BIGINT NOT NULL,
    PRIMARY KEY (plugin, handler)
);
