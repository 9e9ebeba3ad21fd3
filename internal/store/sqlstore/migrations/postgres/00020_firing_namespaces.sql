-- Firings are claimed namespace by namespace, so that no namespace holds up another.

-- +goose Up
CREATE INDEX effect_firing_space ON effect_firing (namespace, available_at) WHERE status = 'pending';

-- +goose Down
DROP INDEX effect_firing_space;
