-- What became of each request by hand to fire a schedule, so that a repeat is told the same.

-- +goose Up
ALTER TABLE effect_request ADD COLUMN answer TEXT; -- NULL when an earlier release answered it

-- +goose Down
ALTER TABLE effect_request DROP COLUMN answer;
