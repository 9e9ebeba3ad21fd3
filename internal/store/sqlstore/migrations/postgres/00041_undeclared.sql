-- Threads of context handoffs that are to get their objects are found without other retained threads.

-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS thread_undeclared;
CREATE INDEX CONCURRENTLY thread_undeclared ON thread (id) WHERE retained_at <> 0 AND object_uid = '' AND substr(id, 15, 1) = '5';

-- +goose Down
DROP INDEX thread_undeclared;
