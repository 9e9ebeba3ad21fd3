-- The end of conversations and of their objects: clearing, idle expiry, retaining, parking.

-- +goose Up
ALTER TABLE thread ADD COLUMN object_uid TEXT NOT NULL DEFAULT ''; -- of the object that has adopted it
ALTER TABLE thread ADD COLUMN retained_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE thread ADD COLUMN destroyed_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE thread ADD COLUMN destroyed_reason TEXT NOT NULL DEFAULT '';
CREATE INDEX thread_retained ON thread (namespace, id) WHERE retained_at <> 0;

ALTER TABLE thread_head ADD COLUMN asleep INTEGER NOT NULL DEFAULT 0; -- why nobody takes what waits: 0 not, 1 parked, 2 retained, 3 both
ALTER TABLE thread_head ADD COLUMN idle_expiry INTEGER NOT NULL DEFAULT 0; -- microseconds, 0 never
-- When to look whether the thread has expired: no later than it does. It is not moved with every write, but
-- when it has come. NULL when there is nothing that could expire.
ALTER TABLE thread_head ADD COLUMN expires_at INTEGER;
CREATE INDEX thread_head_expiry ON thread_head (expires_at) WHERE expires_at IS NOT NULL;

-- +goose Down
DROP INDEX thread_head_expiry;
ALTER TABLE thread_head DROP COLUMN expires_at;
ALTER TABLE thread_head DROP COLUMN idle_expiry;
ALTER TABLE thread_head DROP COLUMN asleep;
DROP INDEX thread_retained;
ALTER TABLE thread DROP COLUMN destroyed_reason;
ALTER TABLE thread DROP COLUMN destroyed_at;
ALTER TABLE thread DROP COLUMN retained_at;
ALTER TABLE thread DROP COLUMN object_uid;
