DROP TABLE sys_event_consumer;
DROP TABLE sys_event;
DROP SEQUENCE sys_event_sequence;
