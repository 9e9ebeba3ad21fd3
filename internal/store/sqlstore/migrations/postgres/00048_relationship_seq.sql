-- The sequence number of the parent's message at which a relationship was made, because the index of that message changes when earlier ones
-- are deleted. 0 when it is tied to none, or an earlier release wrote it.

-- +goose Up
ALTER TABLE relationship ADD COLUMN message_seq BIGINT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE relationship DROP COLUMN message_seq;
