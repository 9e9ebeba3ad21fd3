-- The root that the variables of a thread are sealed under, where it is not root_id: a thread that was adopted alone keeps its variables,
-- and so does all below it. '' where it is root_id.

-- +goose Up
ALTER TABLE thread ADD COLUMN env_root TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE thread DROP COLUMN env_root;
