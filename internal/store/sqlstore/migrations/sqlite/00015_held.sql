-- Hooks that could not be told: nobody takes them before a time, at which they are found. 0 when it is not held.

-- +goose Up
ALTER TABLE inbox ADD COLUMN held_until INTEGER NOT NULL DEFAULT 0;
ALTER TABLE inbox ADD COLUMN tries INTEGER NOT NULL DEFAULT 0; -- that came to nothing
CREATE INDEX inbox_held ON inbox (held_until) WHERE held_until > 0;

-- +goose Down
DROP INDEX inbox_held;
ALTER TABLE inbox DROP COLUMN tries;
ALTER TABLE inbox DROP COLUMN held_until;
