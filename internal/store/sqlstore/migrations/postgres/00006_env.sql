-- Variables of threads, their values sealed (SPEC ENV-05). scoped_env has the names that a thread does not
-- inherit, each between commas.

-- +goose Up
CREATE TABLE thread_env (
    thread     BIGINT NOT NULL REFERENCES thread (key) ON DELETE CASCADE,
    name       TEXT   NOT NULL,
    type       TEXT   NOT NULL, -- text or secret
    value      BYTEA  NOT NULL,
    key_id     BIGINT NOT NULL, -- of the key under which the value is sealed
    origin     TEXT   NOT NULL, -- set, spec or inherited
    entry      TEXT   NOT NULL, -- of the object's spec that was applied last
    version    TEXT   NOT NULL, -- of what that entry refers to
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (thread, name)
);
CREATE INDEX thread_env_key ON thread_env (key_id);
CREATE INDEX run_env_missing ON run (thread) WHERE status = 'waiting' AND reason = 'EnvMissing';
ALTER TABLE thread ADD COLUMN scoped_env TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE thread DROP COLUMN scoped_env;
DROP INDEX run_env_missing;
DROP TABLE thread_env;
