-- Handoffs (SPEC AGT-03): the agent that a thread was made with, and the one that the spec of its object named when
-- it was last followed. Before there were handoffs both were the agent that has it.

-- +goose Up
ALTER TABLE thread ADD COLUMN origin_agent TEXT NOT NULL DEFAULT '';
ALTER TABLE thread ADD COLUMN declared_agent TEXT NOT NULL DEFAULT '';
UPDATE thread SET origin_agent = agent, declared_agent = agent;

-- +goose Down
ALTER TABLE thread DROP COLUMN declared_agent;
ALTER TABLE thread DROP COLUMN origin_agent;
