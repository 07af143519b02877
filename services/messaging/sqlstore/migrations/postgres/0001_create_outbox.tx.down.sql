DROP TABLE sys_http_attempt;

DROP TABLE sys_http_delivery;

DROP TABLE sys_http_target;
