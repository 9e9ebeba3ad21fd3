-- Threads of a namespace that are not retained are found page by page, in the order of their ids.

-- +goose Up
CREATE INDEX thread_owned ON thread (namespace, id) WHERE retained_at = 0;

-- +goose Down
DROP INDEX thread_owned;
