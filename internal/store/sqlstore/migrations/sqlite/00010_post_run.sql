-- Ended runs whose post-run tasks are not done: few at any time, and found without a look at the others.

-- +goose Up
CREATE INDEX run_unsettled ON run (ended_at) WHERE state = '{"postRun":true}';

-- +goose Down
DROP INDEX run_unsettled;
