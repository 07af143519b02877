CREATE TABLE sys_plugin_value (
    plugin TEXT NOT NULL,
    name TEXT NOT NULL,
    value BLOB NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (plugin, name)
);

CREATE TABLE sys_plugin_inbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    plugin TEXT NOT NULL,
    handler TEXT NOT NULL,
    event BLOB NOT NULL
);

CREATE INDEX sys_plugin_inbox_handler_idx ON sys_plugin_inbox (plugin, handler, id);

CREATE TABLE sys_plugin_handler (
    plugin TEXT NOT NULL,
    handler TEXT NOT NULL,
    owner TEXT NOT NULL,
    leased_until BIGINT NOT NULL,
    PRIMARY KEY (plugin, handler)
);
