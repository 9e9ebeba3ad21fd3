-- Finds the namespaces that have sums of usage, those that are gone among them.

-- +goose Up
CREATE INDEX usage_sum_owner ON usage_sum (namespace, namespace_uid);

-- +goose Down
DROP INDEX usage_sum_owner;
