ALTER TABLE sys_http_job ADD COLUMN kind TEXT NOT NULL DEFAULT 'redeliver';
