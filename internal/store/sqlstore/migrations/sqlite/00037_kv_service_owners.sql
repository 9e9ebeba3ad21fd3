-- Finds the namespaces that have key-values, those that are gone among them.

-- +goose Up
CREATE INDEX kv_service_owner ON kv_service (namespace, namespace_uid);

-- +goose Down
DROP INDEX kv_service_owner;
