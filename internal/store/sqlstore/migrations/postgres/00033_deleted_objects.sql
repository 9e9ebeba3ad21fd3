-- Thread objects that are being deleted, or gone.

-- +goose Up
-- A replica whose copy of the object is old, or whose request was held up, must not bring the thread back.
CREATE TABLE deleted_object (
    uid        TEXT NOT NULL PRIMARY KEY,
    deleted_at BIGINT NOT NULL
);
CREATE INDEX deleted_object_age ON deleted_object (deleted_at);

-- +goose Down
DROP TABLE deleted_object;
