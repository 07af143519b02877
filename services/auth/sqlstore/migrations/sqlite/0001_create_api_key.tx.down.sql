DROP TABLE sys_api_key;
