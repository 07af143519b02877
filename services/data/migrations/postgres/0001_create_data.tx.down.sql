DROP TABLE sys_secret;
DROP TABLE sys_data_counter;
DROP TABLE sys_data_field;
