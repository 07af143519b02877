DROP TABLE sys_lease;
DROP TABLE sys_node;
