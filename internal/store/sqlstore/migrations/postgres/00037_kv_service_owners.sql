-- Finds the namespaces that have key-values, those that are gone among them.

-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS kv_service_owner;
CREATE INDEX CONCURRENTLY kv_service_owner ON kv_service (namespace, namespace_uid);

-- +goose Down
DROP INDEX kv_service_owner;
