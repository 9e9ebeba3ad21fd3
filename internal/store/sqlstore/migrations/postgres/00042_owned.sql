-- Threads of a namespace that are not retained are found page by page, in the order of their ids.

-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS thread_owned;
CREATE INDEX CONCURRENTLY thread_owned ON thread (namespace, id) WHERE retained_at = 0;

-- +goose Down
DROP INDEX thread_owned;
