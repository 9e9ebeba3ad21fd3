package thread

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread/jsonl"
)

const (
	// exportPage is the largest number of messages or log entries that are in memory at once. A message may have a mebibyte.
	exportPage = 50
	// firstExport is how many are read first. Their size says how many the next read may fetch.
	firstExport = 4
	// exportBytes is about how many bytes the next reads fetch. It is also what is drawn before a read.
	exportBytes = 1 << 20
)

// Export writes the conversation as lines of JSON (LOG-01, docs/export.md): the manifest, then messages, tool uses,
// assistant texts and results in the order in which they were written, up to the last one when Export begins. It needs
// memory for one page of messages, however long the conversation is. wrote is false for an error before anything was
// written.
func (st *State) Export(ctx context.Context, w io.Writer) (wrote bool, err error) {
	ctx, done := membudget.Part(ctx)
	defer done()
	info, err := st.Info(ctx)
	if err != nil {
		return false, err
	}
	e := &exporter{st: st, ctx: ctx, last: info.LastSeq, out: bufio.NewWriterSize(w, 64<<10)}
	e.enc = json.NewEncoder(e.out)
	e.enc.SetEscapeHTML(false)
	m, err := e.manifest(info)
	if err != nil {
		return false, err
	}
	begin, err := e.begin(info)
	if err != nil {
		return false, err
	}
	if err := e.open(begin); err != nil {
		return false, err
	}
	if err := e.enc.Encode(m); err != nil {
		return true, err
	}
	if err := e.lines(); err != nil {
		return true, err
	}
	return true, e.out.Flush()
}

type exporter struct {
	st   *State
	ctx  context.Context
	last int64 // sequence number of the last entry to export
	out  *bufio.Writer
	enc  *json.Encoder
	said pages[store.Message]
	log  pages[store.Event]
}

// manifest returns the first line. Values from an import are kept until something has happened since.
func (e *exporter) manifest(info *store.Thread) (*jsonl.Manifest, error) {
	m := &jsonl.Manifest{
		AgentID: info.Agent, TaskID: info.TaskID, Title: info.Title,
		CreatedAt: jsonl.Time(info.CreatedAt), UpdatedAt: jsonl.Time(info.LastActivityAt),
	}
	own, err := e.session(info)
	if err != nil {
		return nil, err
	}
	m.SessionID, m.SessionMessages = own.id, own.messages
	r, err := e.st.svc.store.Imported(e.ctx, info.ID)
	if errors.Is(err, store.ErrNotFound) {
		return m, nil
	}
	if err != nil {
		return nil, err
	}
	was, err := jsonl.ParseManifest(r.Manifest)
	if err != nil {
		return nil, err
	}
	m.CreatedAt = was.CreatedAt
	if info.LastSeq == r.LastSeq {
		m.UpdatedAt, m.SessionID, m.SessionMessages = was.UpdatedAt, was.SessionID, was.SessionMessages
	}
	return m, nil
}

// begin returns the sequence number after which the conversation begins: the one at which it was last destroyed. The
// log keeps the ends of earlier runs, which are not part of this conversation.
func (e *exporter) begin(info *store.Thread) (seq int64, err error) {
	for info.DestroyedAt != 0 {
		page, err := e.st.svc.store.LogEntries(e.ctx, info.ID, seq, exportPage, store.EventDestroyed)
		if err != nil {
			return 0, err
		}
		for _, v := range page {
			if v.Seq <= e.last {
				seq = v.Seq
			}
		}
		if len(page) < exportPage || page[len(page)-1].Seq > e.last {
			break
		}
	}
	return seq, nil
}

// exported are the types of log entries that have lines.
var exported = []string{store.EventRunEnded, store.EventImportedToolUse, store.EventImportedAssistantText, store.EventImportedResult}

// open reads the first messages and log entries after a sequence number. An error is still an answer then.
func (e *exporter) open(after int64) error {
	e.said = e.messagesAfter(after)
	e.log = pages[store.Event]{
		ctx: e.ctx, after: after, read: func(after int64, limit int) ([]store.Event, error) {
			return e.st.svc.store.LogEntries(e.ctx, e.st.id, after, limit, exported...)
		},
		seq: func(v *store.Event) int64 { return v.Seq }, bytes: (*store.Event).Bytes,
	}
	_, err := e.said.peek()
	if err == nil {
		_, err = e.log.peek()
	}
	return err
}

// lines writes messages and log entries, merged by their sequence numbers.
func (e *exporter) lines() error {
	for {
		m, err := e.said.peek()
		if err != nil {
			return err
		}
		v, err := e.log.peek()
		if err != nil {
			return err
		}
		if m != nil && m.Seq > e.last {
			m = nil
		}
		if v != nil && v.Seq > e.last {
			v = nil
		}
		switch {
		case m == nil && v == nil:
			return nil
		case v == nil || m != nil && m.Seq <= v.Seq:
			e.said.next()
			err = e.message(m)
		default:
			e.log.next()
			err = e.entry(v)
		}
		if err != nil {
			return err
		}
	}
}

func (e *exporter) messages(after int64, limit int) ([]store.Message, error) {
	page, err := e.st.svc.store.Messages(e.ctx, e.st.id, store.MessageQuery{Order: "asc", AfterSeq: after, Limit: limit, IncludeSilent: true})
	if err != nil {
		return nil, err
	}
	return page.Messages, nil
}

// importable returns text as an import takes it: without NUL, which not every database stores.
func importable(text string) string { return strings.ReplaceAll(text, "\x00", "\uFFFD") }

// message writes the lines of a message. Tool results have none: the format has only the calls. Summaries have none
// either: what they stand for is there, and where it is imported it is summed up again when that is needed.
func (e *exporter) message(m *store.Message) error {
	at, text := jsonl.Time(m.CreatedAt), ""
	if m.Content != nil {
		text = importable(*m.Content)
	}
	if m.Role == store.RoleTool || m.Summary != nil {
		return nil
	}
	if len(m.ToolCalls) == 0 {
		return e.enc.Encode(jsonl.Message{Type: jsonl.TypeMessage, Role: string(m.Role), Text: text, Timestamp: at, Name: importable(m.Name), Silent: m.Silent, Side: m.Side})
	}
	if text != "" {
		if err := e.enc.Encode(jsonl.AssistantText{Type: jsonl.TypeAssistantText, Text: text, Timestamp: at, Side: m.Side}); err != nil {
			return err
		}
	}
	for _, call := range m.ToolCalls {
		if err := e.enc.Encode(jsonl.ToolUse{Type: jsonl.TypeToolUse, Name: call.Name, Input: inputOf(call.Arguments), Timestamp: at, Side: m.Side}); err != nil {
			return err
		}
	}
	return nil
}

// inputOf returns the arguments of a call as an object. A model may have written something else.
func inputOf(arguments string) json.RawMessage {
	text := bytes.TrimSpace([]byte(arguments))
	if len(text) == 0 {
		return json.RawMessage("{}")
	}
	if text[0] == '{' && json.Valid(text) {
		return text
	}
	wrapped, _ := json.Marshal(map[string]string{"arguments": arguments}) // marshalling strings cannot fail
	return wrapped
}

// runEnded is the data of run.ended.
type runEnded struct {
	Steps      int64           `json:"steps"`
	DurationMs *int64          `json:"durationMs"`
	Usage      *store.RunUsage `json:"usage"`
}

// entry writes the line of a log entry.
func (e *exporter) entry(v *store.Event) error {
	if v.Type != store.EventRunEnded {
		if _, err := e.out.Write(v.Data); err != nil {
			return err
		}
		return e.out.WriteByte('\n')
	}
	var ended runEnded
	_ = json.Unmarshal(v.Data, &ended) // without numbers, the result has none either
	r := jsonl.Result{Type: jsonl.TypeResult, DurationMs: ended.DurationMs, Turns: &ended.Steps, Timestamp: jsonl.Time(v.CreatedAt)}
	if u := ended.Usage; u != nil {
		r.InputTokens, r.OutputTokens, r.CacheReadTokens = &u.InputTokens, &u.OutputTokens, &u.CachedTokens
		if u.Cost != 0 {
			r.Cost = &u.Cost
		}
	}
	return e.enc.Encode(r)
}

// messagesAfter returns the pages of the conversation after a sequence number.
func (e *exporter) messagesAfter(after int64) pages[store.Message] {
	return pages[store.Message]{
		ctx: e.ctx, read: e.messages, after: after,
		seq: func(m *store.Message) int64 { return m.Seq }, bytes: (*store.Message).Bytes,
	}
}

// pages reads a list page by page.
type pages[T any] struct {
	ctx   context.Context // its account is what pages draw from
	read  func(after int64, limit int) ([]T, error)
	seq   func(*T) int64
	bytes func(*T) int64
	page  []T
	after int64
	limit int   // how many the next page may have
	drawn int64 // for the page
	done  bool
}

// peek returns the next element, or nil at the end.
func (p *pages[T]) peek() (*T, error) {
	if len(p.page) == 0 && !p.done {
		if err := p.fetch(); err != nil {
			return nil, err
		}
	}
	if len(p.page) == 0 {
		return nil, nil
	}
	return &p.page[0], nil
}

// release returns the memory of the page. Who reads no further calls it.
func (p *pages[T]) release() {
	membudget.From(p.ctx).Return(p.drawn)
	p.page, p.drawn = nil, 0
}

// fetch reads the next page. It draws its memory, and returns that of the one before it.
func (p *pages[T]) fetch() error {
	p.release()
	adjust, err := membudget.Reserve(p.ctx, exportBytes)
	if err != nil {
		return err
	}
	limit := cmp.Or(p.limit, firstExport)
	p.page, err = p.read(p.after, limit)
	if err != nil {
		return err
	}
	p.done = len(p.page) < limit
	var size int64
	for i := range p.page {
		size += p.bytes(&p.page[i])
	}
	p.drawn = 2 * size // once as it is read, once as it is written
	adjust(p.drawn)
	if n := len(p.page); n > 0 {
		p.after = p.seq(&p.page[n-1])
		p.limit = min(max(int(exportBytes/(size/int64(n))), 1), exportPage)
	}
	return nil
}

func (p *pages[T]) next() { p.page = p.page[1:] }
