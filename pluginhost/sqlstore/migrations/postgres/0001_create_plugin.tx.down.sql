DROP TABLE sys_plugin_handler;
DROP TABLE sys_plugin_inbox;
DROP TABLE sys_plugin_value;
