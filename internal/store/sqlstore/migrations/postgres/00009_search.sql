-- The texts of messages, to be searched. What is appended waits in the index's list of pending entries, so that
-- appending stays cheap. Words end at ASCII's signs, as in SQLite; what else is
-- a letter, and which are the same but for their case, is as the database's locale has it.

-- +goose Up
CREATE INDEX message_text ON message USING gin (to_tsvector('simple', regexp_replace(left(content, 200000), '[\x01-\x2f\x3a-\x40\x5b-\x60\x7b-\x7f]+', ' ', 'g')))
    WHERE content IS NOT NULL;

-- +goose Down
DROP INDEX message_text;
