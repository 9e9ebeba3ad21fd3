-- Finds the threads whose namespace's UID is not known.

-- +goose Up
CREATE INDEX thread_owner ON thread (namespace) WHERE namespace_uid = '' AND retained_at = 0;

-- +goose Down
DROP INDEX thread_owner;
