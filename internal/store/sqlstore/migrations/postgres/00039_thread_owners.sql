-- Finds the threads whose namespace's UID is not known.

-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS thread_owner;
CREATE INDEX CONCURRENTLY thread_owner ON thread (namespace) WHERE namespace_uid = '' AND retained_at = 0;

-- +goose Down
DROP INDEX thread_owner;
