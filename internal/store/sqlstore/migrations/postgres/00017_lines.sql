-- Log lines of code: they are read apart from the rest of the log, and the oldest of them are dropped.

-- +goose Up
CREATE INDEX log_lines ON log (thread, seq, type) WHERE type IN ('code.log', 'handler.log', 'hook.failed', 'task.failed');

-- +goose Down
DROP INDEX log_lines;
