-- How many hooks, one caused by the other, have led to the firing of an effect.

-- +goose Up
ALTER TABLE effect_firing ADD COLUMN hook_depth INTEGER NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE effect_firing DROP COLUMN hook_depth;
