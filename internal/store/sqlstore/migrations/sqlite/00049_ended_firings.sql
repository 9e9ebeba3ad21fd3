-- The firing of an effect that ended last is found without reading the others, of which thousands may be under way.

-- +goose Up
CREATE INDEX effect_firing_ended ON effect_firing (effect_id, ended_at) WHERE ended_at > 0;

-- +goose Down
DROP INDEX effect_firing_ended;
