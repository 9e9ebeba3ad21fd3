-- What is removed when it is old enough, and whose retained data is.

-- +goose Up
CREATE INDEX log_deltas ON log (created_at) WHERE type = 'message.delta';
ALTER TABLE inbox_key ADD COLUMN used_at BIGINT NOT NULL DEFAULT (extract(epoch FROM now()) * 1000000)::bigint;
CREATE INDEX inbox_key_age ON inbox_key (used_at);
ALTER TABLE thread ADD COLUMN namespace_uid TEXT NOT NULL DEFAULT ''; -- '' when it is not known
CREATE INDEX thread_retained_age ON thread (retained_at) WHERE retained_at <> 0;

-- +goose Down
DROP INDEX thread_retained_age;
ALTER TABLE thread DROP COLUMN namespace_uid;
DROP INDEX inbox_key_age;
ALTER TABLE inbox_key DROP COLUMN used_at;
DROP INDEX log_deltas;
