CREATE TABLE sys_keyring (
	key_id      TEXT COLLATE "C" NOT NULL PRIMARY KEY,
	position    BIGINT NOT NULL UNIQUE,
	check_value TEXT COLLATE "C" NOT NULL,
	created_at  BIGINT NOT NULL
);
