ALTER TABLE sys_http_job DROP COLUMN kind;
