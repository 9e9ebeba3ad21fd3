-- Children that may still work are found without those that have ended.

-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS thread_unfinished;
CREATE INDEX CONCURRENTLY thread_unfinished ON thread (parent_id, created_at) WHERE parent_id <> '' AND terminated_at = 0 AND retained_at = 0;

-- +goose Down
DROP INDEX thread_unfinished;
