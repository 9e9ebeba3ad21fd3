-- What Webhooks want to be told, and what is to be told to them. A delivery is written in the transaction that it tells of.

-- +goose Up
CREATE TABLE webhook (
    id        TEXT NOT NULL PRIMARY KEY, -- UID of the Webhook object
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    events    TEXT NOT NULL, -- ",run.ended,effect.failed,"
    agents    TEXT NOT NULL  -- ",analyst,"; '' for all
);
CREATE INDEX webhook_namespace ON webhook (namespace);

CREATE TABLE webhook_delivery (
    id           TEXT    NOT NULL PRIMARY KEY, -- of the webhook and of what happened, so that a repeat changes nothing
    webhook      TEXT    NOT NULL,
    name         TEXT    NOT NULL, -- of the Webhook object
    namespace    TEXT    NOT NULL,
    event        TEXT    NOT NULL,
    thread_id    TEXT    NOT NULL,
    thread_name  TEXT    NOT NULL,
    agent        TEXT    NOT NULL,
    data         TEXT    NOT NULL,
    status       TEXT    NOT NULL, -- pending, delivered or dead
    attempts     BIGINT  NOT NULL,
    error        TEXT    NOT NULL,
    code         BIGINT  NOT NULL, -- the last answer's status; 0 without one
    created_at   BIGINT  NOT NULL,
    available_at BIGINT  NOT NULL, -- a claim, or the wait before another attempt, ends then
    ended_at     BIGINT  NOT NULL,
    owner        TEXT    NOT NULL,
    epoch        BIGINT  NOT NULL  -- rises with each claim
);
CREATE INDEX webhook_delivery_pending ON webhook_delivery (available_at) WHERE status = 'pending';
CREATE INDEX webhook_delivery_webhook ON webhook_delivery (webhook, available_at) WHERE status = 'pending';
CREATE INDEX webhook_delivery_list ON webhook_delivery (namespace, created_at, id);
CREATE INDEX webhook_delivery_ended ON webhook_delivery (ended_at) WHERE ended_at > 0;

-- +goose Down
DROP TABLE webhook_delivery;
DROP TABLE webhook;
