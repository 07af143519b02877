DROP TABLE sys_event_consumer;
DROP TABLE sys_event;
