DROP TABLE sys_data_object;
