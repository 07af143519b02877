DROP TABLE sys_http_job;
