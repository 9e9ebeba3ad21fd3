-- Firings are claimed in the order of this index, so that a claim sorts nothing where many were recorded together. The index of SQLite has this
-- order already: it ends with the primary key.

-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS effect_firing_order;
CREATE INDEX CONCURRENTLY effect_firing_order ON effect_firing (namespace, available_at, effect_id, due, thread_id) WHERE status = 'pending';
DROP INDEX CONCURRENTLY IF EXISTS effect_firing_space;

-- +goose Down
CREATE INDEX effect_firing_space ON effect_firing (namespace, available_at) WHERE status = 'pending';
DROP INDEX effect_firing_order;
