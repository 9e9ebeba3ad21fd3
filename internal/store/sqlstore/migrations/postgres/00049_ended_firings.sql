-- The firing of an effect that ended last is found without reading the others, of which thousands may be under way.

-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS effect_firing_ended;
CREATE INDEX CONCURRENTLY effect_firing_ended ON effect_firing (effect_id, ended_at) WHERE ended_at > 0;

-- +goose Down
DROP INDEX effect_firing_ended;
