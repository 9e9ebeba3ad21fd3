-- Firings of schedules: several threads at one due time, an epoch that fences their holders, what is to be done as it was when the
-- firing was recorded; how far each schedule has come, which due times did not fire, and the arguments that code gave.

-- +goose Up
ALTER TABLE effect_firing
    DROP CONSTRAINT effect_firing_pkey,
    ADD PRIMARY KEY (effect_id, due, thread_id),
    ADD COLUMN epoch BIGINT NOT NULL DEFAULT 0, -- rises with each claim
    ADD COLUMN origin TEXT NOT NULL DEFAULT '',
    ADD COLUMN target TEXT,
    ADD COLUMN waiting TEXT NOT NULL DEFAULT '', -- what it waits for, which is no attempt
    ADD COLUMN started_at BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN cost DOUBLE PRECISION NOT NULL DEFAULT 0,
    ADD COLUMN log TEXT NOT NULL DEFAULT ''; -- what its code wrote, when no thread has it
UPDATE effect_firing SET epoch = attempts WHERE attempts > 0;
CREATE INDEX effect_firing_active ON effect_firing (effect_id) WHERE status IN ('pending', 'queued', 'running');

CREATE TABLE effect_schedule (
    effect_id   TEXT NOT NULL PRIMARY KEY,
    namespace   TEXT NOT NULL,
    name        TEXT NOT NULL,
    fingerprint TEXT NOT NULL, -- of the schedule that the cursor belongs to
    cursor      BIGINT NOT NULL, -- all due times up to it have been dealt with
    fired       BIGINT NOT NULL, -- due times that fired
    failures    BIGINT NOT NULL, -- in a row
    skipped     BIGINT NOT NULL, -- due times that did not fire
    day         TEXT NOT NULL, -- to which day_fired belongs
    day_fired   BIGINT NOT NULL,
    removed     BIGINT NOT NULL, -- nothing fires any more
    updated_at  BIGINT NOT NULL
);

CREATE TABLE effect_skip (
    effect_id   TEXT NOT NULL,
    due         BIGINT NOT NULL, -- the first due time
    until       BIGINT NOT NULL, -- the last due time
    thread_id   TEXT NOT NULL,
    count       BIGINT NOT NULL,
    reason      TEXT NOT NULL,
    detail      TEXT NOT NULL,
    recorded_at BIGINT NOT NULL,
    PRIMARY KEY (effect_id, due, thread_id, reason)
);

CREATE TABLE effect_args (
    id         TEXT NOT NULL PRIMARY KEY,
    thread_id  TEXT NOT NULL,
    args       TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX effect_args_thread ON effect_args (thread_id);

-- +goose Down
DROP TABLE effect_args;
DROP TABLE effect_skip;
DROP TABLE effect_schedule;
DROP INDEX effect_firing_active;
DELETE FROM effect_firing WHERE status IN ('queued', 'running', 'canceled') OR EXISTS (SELECT 1 FROM effect_firing o
    WHERE o.effect_id = effect_firing.effect_id AND o.due = effect_firing.due AND o.thread_id < effect_firing.thread_id);
ALTER TABLE effect_firing
    DROP CONSTRAINT effect_firing_pkey,
    ADD PRIMARY KEY (effect_id, due),
    DROP COLUMN epoch, DROP COLUMN origin, DROP COLUMN target, DROP COLUMN waiting, DROP COLUMN started_at, DROP COLUMN cost, DROP COLUMN log;
