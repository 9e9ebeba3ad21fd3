-- When a parked run goes on by itself: 0 for never. Few wait for a time, and they are found by it.

-- +goose Up
ALTER TABLE run ADD COLUMN wake_at INTEGER NOT NULL DEFAULT 0;
CREATE INDEX run_wake ON run (wake_at) WHERE wake_at > 0;

-- +goose Down
DROP INDEX run_wake;
ALTER TABLE run DROP COLUMN wake_at;
