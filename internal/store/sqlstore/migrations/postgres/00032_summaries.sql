-- Messages that stand for others, which a model has summed up.

-- +goose Up
ALTER TABLE message ADD COLUMN summary_to BIGINT; -- the sequence number of the last message that it stands for
CREATE INDEX message_summary ON message (thread, summary_to) WHERE summary_to IS NOT NULL;

-- +goose Down
DROP INDEX message_summary;
ALTER TABLE message DROP COLUMN summary_to;
