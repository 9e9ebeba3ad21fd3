-- What the history of a schedule no longer says: which due times fired, so that a backfill does not fire them again, and which requests by hand
-- were answered.

-- +goose Up
CREATE TABLE effect_fired (
    effect_id TEXT NOT NULL PRIMARY KEY,
    times     TEXT NOT NULL -- due times whose firings were removed, as JSON
) STRICT, WITHOUT ROWID;
CREATE TABLE effect_request (
    effect_id   TEXT NOT NULL,
    request     TEXT NOT NULL,
    recorded_at INTEGER NOT NULL,
    PRIMARY KEY (effect_id, request)
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE effect_request;
DROP TABLE effect_fired;
