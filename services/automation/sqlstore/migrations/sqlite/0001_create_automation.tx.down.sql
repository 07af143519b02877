DROP TABLE sys_automation_change;
DROP TABLE sys_automation_schedule;
DROP TABLE sys_automation_run;
DROP TABLE sys_automation_revision;
DROP TABLE sys_automation_version;
DROP TABLE sys_automation_flow;
