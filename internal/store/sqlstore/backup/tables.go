// Package backup reads the rows of a namespace, and writes them into another database (K8S-09).
package backup

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// scope says which rows of a table belong to a namespace, and when a restore writes them.
type scope int

const (
	ofThreads   scope = iota // by the thread's key in column thread; written as they arrive
	threadRows               // the threads themselves; written first, under a name that no namespace can have
	heads                    // as ofThreads, but written last, because a thread without a head is not visible
	ofNamespace              // by a namespace in column namespace; written with the heads
	ofEffects                // of ScheduledEffects; written once their new objects are known
	arguments                // of effects of threads, by the thread's id; written as they arrive
)

// kind is the type of a column.
type kind byte

const (
	integer  kind = 'i'
	text     kind = 't'
	float    kind = 'f'
	bytes    kind = 'b'
	threadID kind = 'k' // the key of a thread, which is written as its id
	named    kind = 'n' // the id of a thread, which may be gone, or empty; it is read and written as a text
)

type column struct {
	name     string
	kind     kind
	nullable bool
	since    int // the first schema all of whose backups have the column, where that is later than store.OldestBackup
}

type table struct {
	name    string
	scope   scope
	columns []column
	order   string // of the rows; "" for any
	// remnants are also read: messages that forks read of threads that are gone.
	remnants bool
	// key are the columns that, with the namespace, are the primary key of rows that belong to the namespace with a UID. A backup does not
	// have the UID. Other rows have none.
	key []string
	// changed has expressions for columns of kept rows that are not written as they are in the backup, which is x.
	changed map[string]string
}

// newHead are the changes of a head: its thread has no object yet.
var newHead = map[string]string{
	"asleep":     fmt.Sprintf("(x.asleep & (~%d)) | %d", txn.AsleepDeleting, txn.AsleepRetained),
	"work_since": "CAST(NULL AS BIGINT)",
}

// newFiring are the changes of a firing: it keeps what its key is made with, and a claim of the past has ended.
var newFiring = map[string]string{
	"keyed_by":     "CASE x.keyed_by WHEN '' THEN x.effect_id ELSE x.keyed_by END",
	"owner":        "''",
	"available_at": "CASE x.owner WHEN '' THEN x.available_at ELSE 0 END",
	"epoch":        "CASE x.owner WHEN '' THEN x.epoch ELSE x.epoch + 1 END",
}

// tables are the tables that a backup has, in the order in which it has them. A test compares the columns with those of both databases.
// An upper-case letter stands for a column that may be NULL. A number says since which schema each backup has the column; in earlier ones it is 0 or empty.
var tables = []table{
	define("thread", threadRows, "", `id:t namespace:t name:t agent:t user_id:t task_id:t title:t arguments:T created_at:i parent_id:n reference:t root_id:n
		depth:i child:T terminated_at:i terminated_reason:t registry_status:t archived_at:i fields:T object_uid:t retained_at:i destroyed_at:i destroyed_reason:t
		origin_id:n fork_index:i scoped_env:t env_root:n43 origin_agent:t declared_agent:t restored:t namespace_uid:t39 waits:t33`).withRemnants(),
	define("message", ofThreads, "x.thread, x.seq", `thread:k seq:i id:t role:t silent:i depth:i status:t created_at:i run_id:t tool_call_id:T content:T rest:T summary_to:I`).withRemnants(),
	define("message_block", ofThreads, "", `thread:k at:i spoken:i silent:i deep:t`).withRemnants(),
	define("message_segment", ofThreads, "", `thread:k lo:i hi:i source:k`),
	define("log", ofThreads, "", `thread:k seq:i type:t run_id:t message_id:t data:T created_at:i`),
	define("inbox", ofThreads, "", `thread:k seq:i key:t kind:t limited:i payload:T created_at:i held_until:i tries:i`),
	define("inbox_key", ofThreads, "", `thread:k key:t seq:i used_at:i33`),
	define("run", ofThreads, "", `thread:k id:t seq:i agent:t status:t reason:t message:t steps:i started_at:i ended_at:i state:T usage:T session_state:T wake_at:i tasks_at:i33`),
	define("kv", ofThreads, "", `thread:k key:t value:t updated_at:i`),
	define("file", ofThreads, "", `thread:k path:t parent:t dir:i mime_type:t digest:t size:i metadata:T width:i height:i created_at:i`),
	define("file_usage", ofThreads, "", `thread:k files:i folders:i bytes:i max_bytes:I max_files:I namespace:t33`),
	define("idempotency", ofThreads, "", `thread:k key:t fingerprint:t result:T created_at:i`),
	define("relationship", ofThreads, "", `thread:k peer:n type:t role:t message_index:i created_at:i comment:t message_seq:i48`),
	define("thread_env", ofThreads, "", `thread:k name:t type:t value:b key_id:i origin:t entry:t version:t updated_at:i`),
	define("thread_state", ofThreads, "", `thread:k key:t pos:i size:i value:t`),
	define("thread_state_warning", ofThreads, "", `thread:k scope:t reason:t message:t created_at:i`),
	define("thread_import", ofThreads, "", `thread:k manifest:t last_seq:i`),
	define("embedding", ofThreads, "", `thread:k seq:i namespace:t agent:t user_id:t space:t created_at:i vector:b`),
	define("task_usage", ofThreads, "", `thread:k run:t task:t agent:t usage:t created_at:i`),
	define("lease", ofThreads, "", `thread:k owner:t epoch:i expires_at:i`),
	define("thread_head", heads, "", `thread:k namespace:t version:i last_seq:i counts:t queued:i waiting:i running:i work_since:I last_activity_at:i
		activity_second:i archived:i appended:i user_activity_at:i files_added:i files_changed:i files_removed:i asleep:i idle_expiry:i expires_at:I base:i`).withChanges(newHead),
	define("child_task", ofNamespace, "", `id:t parent_id:n reference:t namespace:t kind:t agent:t task:T salt:t living:i created_at:i`),
	define("kv_service", ofNamespace, "", `namespace:t store:t key:t expires_at:i updated_at:i value:t`).withOwner("store", "key"),
	define("usage_sum", ofNamespace, "", `namespace:t agent:t thread_id:n parent_id:n root_id:n purged:i runs:i turns:i input_tokens:i output_tokens:i
		cached_tokens:i reasoning_tokens:i cost:f duration_ms:i threads:i`).withOwner("agent", "thread_id"),
	define("effect_args", arguments, "", `id:t thread_id:t args:t created_at:i`),
	define("effect_schedule", ofEffects, "", `effect_id:t namespace:t name:t fingerprint:t cursor:i fired:i failures:i skipped:i day:t day_fired:i removed:i updated_at:i times:t45`),
	define("effect_skip", ofEffects, "", `effect_id:t due:i until:i thread_id:n count:i reason:t detail:t recorded_at:i`),
	define("effect_fired", ofEffects, "", `effect_id:t times:t`),
	define("effect_request", ofEffects, "", `effect_id:t request:t recorded_at:i answer:T`),
	define("effect_firing", ofEffects, "", `effect_id:t due:i thread_id:n namespace:t name:t effect:t args:T status:t attempts:i error:t fired_at:i ended_at:i owner:t
		available_at:i hook_depth:i epoch:i origin:t target:T waiting:t started_at:i cost:f log:t keyed_by:t`).withChanges(newFiring),
}

// LeftOut are the tables that no backup has, with the reason.
var LeftOut = map[string]string{
	"contents":            "where the bucket has the bytes of a digest: a backup has the bytes themselves",
	"webhook":             "the list of Webhook objects, which the controller writes again",
	"webhook_delivery":    "what servers outside are still to be told: by the UIDs of Webhooks, which a restored one does not have",
	"orphan_object":       "objects of this bucket that are to be removed",
	"deleted_object":      "objects of this cluster that were deleted a short time ago",
	"contents_hold":       "backups that are under way",
	"restore_row":         "restores that are under way",
	"lifecycle":           "a feed with cursors of its own: what has happened is in the log of each thread",
	"model_limit":         "how many calls of models may be made at present",
	"model_permit":        "calls of models that are under way",
	"child_namespace":     "rows to lock",
	"child_count":         "how many rows of child_task there are: the database counts them as they are restored",
	"child_change":        "as child_count",
	"message_usage":       "how many bytes the messages have: the database counts them as they are restored",
	"message_usage_fill":  "which messages are counted already",
	"message_cut":         "messages that are being removed: no backup is made meanwhile",
	"schema_reader":       "which releases may use this database",
	"quota_namespace":     "rows to lock",
	"quota_claim":         "objects that are about to be created",
	"quota_day":           "what counts against the quotas of this installation",
	"probe":               "a row to write to",
	"message_text":        "an index",
	"message_text_state":  "an index",
	"message_text_stale":  "an index",
	"cluster":             "which cluster this is",
	"goose_db_version":    "the version of the schema, which the summary has",
	"message_text_config": "an index", "message_text_data": "an index", "message_text_docsize": "an index", "message_text_idx": "an index", "message_text_content": "an index",
}

// Unread are columns that no backup has: the database numbers its rows by itself, and others say what holds for this cluster or this moment
// only.
var Unread = map[string]bool{"thread.key": true, "message.key": true, "embedding.key": true, "lease.running_in": true,
	"kv_service.namespace_uid": true, "usage_sum.namespace_uid": true}

// define returns a table. columns are separated by spaces. Each is a name, a colon and the letter of its kind, in upper case if it may
// be NULL. The number of the migration that added the column follows, if a backup may lack it.
func define(name string, s scope, order, columns string) table {
	t := table{name: name, scope: s, order: order}
	for spec := range strings.FieldsSeq(columns) {
		name, letter, ok := strings.Cut(spec, ":")
		since := 0
		if ok && len(letter) > 1 {
			n, err := strconv.Atoi(letter[1:])
			since, letter, ok = n, letter[:1], err == nil && strings.ContainsAny(letter[:1], "itn")
		}
		if !ok || len(letter) != 1 {
			panic(fmt.Sprintf("backup: %q is not a column", spec))
		}
		lower := strings.ToLower(letter)
		t.columns = append(t.columns, column{name: name, kind: kind(lower[0]), nullable: lower != letter, since: since})
	}
	return t
}

// withRemnants returns the table as one whose remnants are read, too.
func (t table) withRemnants() table {
	t.remnants = true
	return t
}

// withChanges returns the table with expressions for columns of kept rows.
func (t table) withChanges(changed map[string]string) table {
	t.changed = changed
	return t
}

// withOwner says that rows belong to the namespace with a UID. Those of the new one get it when they are restored.
func (t table) withOwner(key ...string) table {
	t.key = key
	return t
}

// hasOwner reports whether rows belong to the namespace with a UID.
func (t *table) hasOwner() bool { return t.key != nil }

// byName finds a table; nil when no backup has it.
func byName(name string) *table {
	for i := range tables {
		if tables[i].name == name {
			return &tables[i]
		}
	}
	return nil
}

// Columns returns the columns of each table that a backup has.
func Columns() map[string][]string {
	out := map[string][]string{}
	for _, t := range tables {
		for _, c := range t.columns {
			out[t.name] = append(out[t.name], c.name)
		}
	}
	return out
}

// remnant is the prefix of the id of a remnant: what forks read of a thread that is gone. A thread that is being purged is one already.
const remnant = "left:"

// idOf returns the expression for the id that a thread has in a backup.
func idOf(alias string) string {
	return "CASE WHEN " + alias + ".terminated_reason = 'Purged' THEN '" + remnant + "' || " + alias + ".id ELSE " + alias + ".id END"
}

// belongsCondition returns the condition that a row of thread belongs to a namespace, with its arguments. Retained data of another namespace of the
// same name does not.
func belongsCondition(alias string, ns store.Namespace) (cond string, args []any) {
	cond, args = " "+alias+".namespace = ?", []any{ns.Name}
	if ns.UID != "" {
		foreign, uids := queries.ForeignCondition(alias, []string{ns.UID})
		cond, args = cond+" AND NOT ("+foreign+")", append(args, uids...)
	}
	return cond, args
}

// selection returns the query for the rows of a namespace, with its arguments.
func (t *table) selection(remnants bool, ns store.Namespace) (query string, args []any) {
	names := make([]string, len(t.columns))
	for i, c := range t.columns {
		switch {
		case t.scope == threadRows && c.name == "id", c.kind == threadID && c.name == "thread":
			names[i] = idOf("t")
		case c.kind == threadID:
			names[i] = "(SELECT " + idOf("k") + " FROM thread k WHERE k.key = x." + c.name + ")"
		default:
			names[i] = "x." + c.name
		}
	}
	from, where := " FROM "+t.name+" x", ""
	living, args := belongsCondition("t", ns)
	living += " AND t.terminated_reason <> 'Purged'"
	switch {
	case t.scope == threadRows:
		from = " FROM thread x JOIN thread t ON t.key = x.key"
		where = living
	case t.scope == ofThreads, t.scope == heads:
		from += " JOIN thread t ON t.key = x.thread"
		where = living
	case t.scope == arguments:
		from += " JOIN thread t ON t.id = x.thread_id"
		where = living
	case t.name == "effect_skip", t.name == "effect_fired", t.name == "effect_request":
		where, args = " x.effect_id IN (SELECT s.effect_id FROM effect_schedule s WHERE s.namespace = ?)", []any{ns.Name}
	case t.name == "child_task":
		from += " JOIN thread t ON t.id = x.parent_id"
		where, args = " x.namespace = ? AND"+living, append([]any{ns.Name}, args...)
	case t.hasOwner():
		where, args = " x.namespace = ?"+queries.OfNamespace, []any{ns.Name, ns.UID, ns.UID}
	default:
		where, args = " x.namespace = ?", []any{ns.Name}
	}
	if remnants {
		reads, of := belongsCondition("r", ns)
		where = ` (t.namespace = '' OR t.terminated_reason = 'Purged') AND t.key IN (SELECT s.source FROM message_segment s JOIN thread r ON r.key = s.thread WHERE` + reads + `)`
		args = of
	}
	query = "SELECT " + strings.Join(names, ", ") + from + " WHERE" + where
	if t.order != "" {
		query += " ORDER BY " + t.order
	}
	return query, args
}

// ownedThrough reports whether a row belongs to the thread whose id it has in the column.
func (t *table) ownedThrough(c column) bool {
	return c.kind == threadID || t.scope == arguments && c.name == "thread_id"
}

// insertion returns the statement that writes a row. Each thread's id is followed by a namespace, which the thread must have.
func (t *table) insertion(columns []column) string {
	names, values := make([]string, len(columns)), make([]string, len(columns))
	for i, c := range columns {
		names[i], values[i] = c.name, "?"
		switch {
		case c.kind == threadID:
			values[i] = "(SELECT key FROM thread WHERE id = ? AND namespace = ?)"
		case t.scope == arguments && c.name == "thread_id":
			values[i] = "(SELECT id FROM thread WHERE id = ? AND namespace = ?)"
		}
	}
	return "INSERT INTO " + t.name + " (" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(values, ", ") + ") ON CONFLICT DO NOTHING"
}
