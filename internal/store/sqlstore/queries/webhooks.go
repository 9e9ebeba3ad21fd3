package queries

// Webhooks and their deliveries. The casts are for databases that take a parameter of a SELECT as text.
const (
	DeliveryColumns = `id, webhook, name, namespace, event, thread_id, thread_name, agent, data, status, attempts, error, code,
		created_at, available_at, ended_at, epoch`

	Webhooks   = `SELECT id FROM webhook`
	AnyWebhook = `SELECT 1 FROM webhook LIMIT 1`
	PutWebhook = `INSERT INTO webhook (id, namespace, name, events, agents) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET events = excluded.events, agents = excluded.agents`
	DeleteWebhook    = `DELETE FROM webhook WHERE id = ?`
	ForgetDeliveries = `DELETE FROM webhook_delivery WHERE webhook = ?`

	// queue takes the id of what happened, event, data and time twice.
	queue = `INSERT INTO webhook_delivery (` + DeliveryColumns + `, owner)
		SELECT w.id || '.' || CAST(? AS TEXT), w.id, w.name, w.namespace, CAST(? AS TEXT), t.id, t.name, t.agent, CAST(? AS TEXT),
			'pending', 0, '', 0, CAST(? AS BIGINT), CAST(? AS BIGINT), 0, 0, ''`
	queueWhere = ` WHERE w.events LIKE CAST(? AS TEXT) AND (w.agents = '' OR w.agents LIKE '%,' || t.agent || ',%') ON CONFLICT (id) DO NOTHING`
	// QueueOfThread takes, between those of queue and the event's pattern, the agent twice, "" for the thread's own, and the
	// thread's key.
	QueueOfThread = queue + ` FROM webhook w JOIN (SELECT id, namespace, name,
			CASE WHEN CAST(? AS TEXT) = '' THEN agent ELSE CAST(? AS TEXT) END AS agent FROM thread WHERE key = ?) t ON t.namespace = w.namespace` + queueWhere
	// QueueOfFiring takes, in the same place, the id of the thread twice, which may be "", and the namespace.
	QueueOfFiring = queue + ` FROM webhook w JOIN (SELECT CAST(? AS TEXT) AS id, COALESCE(max(name), '') AS name, COALESCE(max(agent), '') AS agent
			FROM thread WHERE id = ?) t ON w.namespace = CAST(? AS TEXT)` + queueWhere

	NextDelivery      = `SELECT COALESCE(min(available_at), 0) FROM webhook_delivery WHERE status = 'pending'`
	WaitingWebhooks   = `SELECT webhook, namespace, min(available_at) AS since FROM webhook_delivery WHERE status = 'pending' AND available_at <= ? GROUP BY webhook, namespace ORDER BY since`
	ClaimedDeliveries = `SELECT namespace, count(*) FROM webhook_delivery WHERE status = 'pending' AND owner <> '' AND available_at > ? GROUP BY namespace`
	ClaimDelivery     = `UPDATE webhook_delivery SET owner = ?, available_at = ?, attempts = attempts + 1, epoch = epoch + 1 WHERE id = ?`
	ReleaseDeliveries = `UPDATE webhook_delivery SET owner = '', available_at = ?, attempts = attempts - 1, epoch = epoch + 1
		WHERE status = 'pending' AND owner = ?`
	FinishDelivery = `UPDATE webhook_delivery SET status = ?, error = ?, code = ?, ended_at = ?, available_at = ?, attempts = attempts - ?, owner = ''
		WHERE id = ? AND epoch = ? AND status = 'pending' AND owner <> ''`
	Redeliver = `UPDATE webhook_delivery SET status = 'pending', available_at = ?, ended_at = 0, owner = '', epoch = epoch + 1,
		attempts = CASE WHEN status = 'pending' THEN attempts ELSE 0 END WHERE namespace = ? AND id = ?`
	Delivery        = `SELECT ` + DeliveryColumns + ` FROM webhook_delivery WHERE namespace = ? AND id = ?`
	PruneDeliveries = `DELETE FROM webhook_delivery WHERE ended_at > 0 AND (status = 'delivered' AND ended_at < ? OR status = 'dead' AND ended_at < ?)`
	// PruneOrphans removes what a transaction wrote that saw a webhook while another one removed it.
	PruneOrphans = `DELETE FROM webhook_delivery WHERE status = 'pending' AND webhook NOT IN (SELECT id FROM webhook)`
	// ClaimableDeliveries has a lock at its end on databases with many writers.
	ClaimableDeliveries = `SELECT ` + DeliveryColumns + ` FROM webhook_delivery WHERE webhook = ? AND status = 'pending' AND available_at <= ?
		ORDER BY available_at, id LIMIT ?`
)
