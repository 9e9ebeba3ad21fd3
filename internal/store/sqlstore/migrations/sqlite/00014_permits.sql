-- Calls of models whose calls are limited (SPEC AGT-06): what may be made at present, and by whom.

-- +goose Up
CREATE TABLE model_limit (
    namespace   TEXT   NOT NULL,
    model       TEXT   NOT NULL,
    requests    INTEGER NOT NULL, -- that may be made now, in millionths
    tokens      INTEGER NOT NULL, -- that may be used now, in millionths; below 0 for what was used beyond
    refilled_at INTEGER NOT NULL,
    PRIMARY KEY (namespace, model)
);
CREATE TABLE model_permit (
    namespace  TEXT   NOT NULL,
    model      TEXT   NOT NULL,
    id         TEXT   NOT NULL,
    asked_at   INTEGER NOT NULL,
    held       INTEGER NOT NULL, -- 0 while it waits
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (namespace, model, id)
);

-- +goose Down
DROP TABLE model_permit;
DROP TABLE model_limit;
