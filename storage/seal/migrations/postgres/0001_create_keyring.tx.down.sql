DROP TABLE sys_keyring;
