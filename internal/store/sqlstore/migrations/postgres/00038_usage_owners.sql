-- Finds the namespaces that have sums of usage, those that are gone among them.

-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS usage_sum_owner;
CREATE INDEX CONCURRENTLY usage_sum_owner ON usage_sum (namespace, namespace_uid);

-- +goose Down
DROP INDEX usage_sum_owner;
