-- The schedule that a cursor belongs to, so that an edit can count what was due before it. '' when an earlier release wrote the cursor.

-- +goose Up
ALTER TABLE effect_schedule ADD COLUMN times TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE effect_schedule DROP COLUMN times;
