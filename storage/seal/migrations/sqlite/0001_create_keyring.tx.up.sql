CREATE TABLE sys_keyring (
	key_id      TEXT NOT NULL PRIMARY KEY,
	position    BIGINT NOT NULL UNIQUE,
	check_value TEXT NOT NULL,
	created_at  BIGINT NOT NULL
);
