DROP TABLE sys_webhook_change;

DROP TABLE sys_webhook_version;
