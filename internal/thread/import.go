package thread

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/membudget/jsonbody"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread/jsonl"
)

// Limits of an import. It is one transaction that other writers may have to wait for, so its size is limited.
const (
	// MaxImportBytes limits a whole import.
	MaxImportBytes = 64 << 20
	// MaxImportLine limits a line, in bytes.
	MaxImportLine = 4 << 20
)

// importBytes is about how much memory an import takes besides its lines.
const importBytes = 1 << 20

// ImportError says which line of an import is wrong, counted from 1.
type ImportError struct {
	Line    int
	Message string
}

// Error implements error.
func (e *ImportError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Message) }

// ImportResult says what an import added.
type ImportResult struct {
	Messages int64
	Events   int64 // tool uses, assistant texts and results
	LastSeq  int64 // of the log after the import
}

// Import fills an empty thread with a conversation in the form of Export (LOG-02): messages become messages, the other
// lines become log entries. It is all or nothing. An *ImportError names the line that is wrong, and store.ErrNotEmpty
// means that the thread already has a conversation. The stream is read to its end, through the bucket, before anything
// is written, so memory is needed for one line only. It is drawn from the account of ctx, that of the largest line before the transaction
// begins, which must not wait for it.
func (st *State) Import(ctx context.Context, r io.Reader) (*ImportResult, error) {
	if info, err := st.Info(ctx); err != nil {
		return nil, err
	} else if info.Messages > 0 || info.Queued > 0 {
		return nil, store.ErrNotEmpty
	}
	ctx, done := membudget.Part(ctx)
	defer done()
	if err := membudget.From(ctx).Draw(ctx, importBytes); err != nil {
		return nil, err
	}
	lines := &jsonbody.Body{ReadCloser: io.NopCloser(r), Context: ctx, Account: membudget.From(ctx), Lines: true}
	temp := newObject() // no file refers to it, so a sweep removes what a crash leaves
	defer st.svc.blobs.remove(context.WithoutCancel(ctx), temp)
	in := &importer{svc: st.svc, limit: MaxImportBytes}
	manifest, err := in.spool(ctx, temp, lines)
	if err != nil {
		return nil, err
	}
	if err := membudget.From(ctx).Draw(ctx, lines.Largest()); err != nil {
		return nil, err
	}
	op := &store.ImportConversation{
		Title: manifest.Title, TaskID: manifest.TaskID,
		Lines: func(yield func(store.ImportLine, error) bool) { in.replay(ctx, temp, yield) },
	}
	if op.Record.Manifest, err = json.Marshal(manifest); err != nil {
		return nil, err
	}
	if err := st.Apply(ctx, op); err != nil {
		return nil, err
	}
	return &ImportResult{Messages: in.messages, Events: in.events, LastSeq: op.Record.LastSeq}, nil
}

type importer struct {
	svc      *Service
	limit    int64
	manifest *jsonl.Manifest
	messages int64
	events   int64
	answer   int64 // 1-based number of the last message that the manifest's session has; 0 for none
}

// spool copies the stream into the bucket and checks each line on the way. A goroutine scans and checks the lines;
// spool waits for it before it returns.
func (in *importer) spool(ctx context.Context, temp string, r io.Reader) (manifest *jsonl.Manifest, err error) {
	pr, pw := io.Pipe()
	checked := make(chan error, 1)
	go func() {
		n := 0
		err := in.scan(r, func(line []byte) error {
			if n++; n == 1 {
				var err error
				if manifest, err = jsonl.ParseManifest(line); err != nil {
					return err
				}
				in.manifest = manifest
			} else if err := in.count(line); err != nil {
				return err
			}
			_, err := pw.Write(append(line, '\n'))
			if errors.Is(err, io.ErrClosedPipe) {
				return errSpool
			}
			return err
		})
		if err == nil && manifest == nil {
			err = &ImportError{Line: 1, Message: "the import is empty: its first line must be the manifest"}
		}
		_ = pw.CloseWithError(err) // never fails
		checked <- err
	}()
	_, err = in.svc.blobs.write(ctx, temp, pr)
	_ = pr.Close() // never fails
	if wrong := <-checked; wrong != nil && !errors.Is(wrong, errSpool) {
		return nil, wrong
	}
	return manifest, err
}

var errSpool = errors.New("the bucket takes no more")

// count checks a line and counts it.
func (in *importer) count(data []byte) error {
	l, err := in.parse(data)
	if err != nil {
		return err
	}
	if l.Message == nil {
		in.events++
		return nil
	}
	in.messages++
	covered := in.manifest.SessionMessages == 0 || in.messages <= in.manifest.SessionMessages
	if m := l.Message; covered && m.Role == store.RoleAssistant && !notice(string(m.Role), *m.Content) {
		in.answer = in.messages
	}
	return nil
}

func (in *importer) parse(data []byte) (*store.ImportLine, error) {
	l, err := jsonl.ParseLine(data)
	if err != nil {
		return nil, err
	}
	if l.Message == nil {
		kind := map[string]string{
			jsonl.TypeToolUse: store.EventImportedToolUse, jsonl.TypeAssistantText: store.EventImportedAssistantText, jsonl.TypeResult: store.EventImportedResult,
		}[l.Type]
		if len(l.Raw) > in.svc.limits.messageBytes {
			return nil, fmt.Errorf("it has %d bytes, more than the limit of %d", len(l.Raw), in.svc.limits.messageBytes)
		}
		return &store.ImportLine{Event: &store.Event{Type: kind, Data: l.Raw, CreatedAt: int64(l.Timestamp)}}, nil
	}
	m := &store.Message{
		Role: store.Role(l.Message.Role), Content: &l.Message.Text, Name: l.Message.Name, Silent: l.Message.Silent, Side: l.Message.Side,
		CreatedAt: int64(l.Timestamp), Status: store.MessageCompleted,
	}
	if err := in.svc.checkSize("message", m); err != nil {
		if wrong, ok := errors.AsType[*InvalidError](err); ok {
			return nil, errors.New(wrong.Message) // the field is the whole line
		}
		return nil, err
	}
	return &store.ImportLine{Message: m}, nil
}

// replay yields the lines that were spooled.
func (in *importer) replay(ctx context.Context, temp string, yield func(store.ImportLine, error) bool) {
	r, err := in.svc.blobs.bucket.NewReader(ctx, temp, nil)
	if err != nil {
		yield(store.ImportLine{}, unavailable(err))
		return
	}
	defer func() { _ = r.Close() }() // opened only for reading
	n, said, heard := 0, int64(0), newDigest()
	session := in.manifest.SessionID
	if runID.MatchString(session) {
		session = ""
	}
	err = in.scan(r, func(data []byte) error {
		if n++; n == 1 {
			return nil
		}
		l, err := in.parse(data)
		if err != nil {
			return err
		}
		if l.Message != nil {
			heard.add(l.Message)
			if said++; session != "" && said == in.answer {
				l.Message.Metadata = importedSession(session, in.manifest.AgentID, heard)
			}
		}
		if !yield(*l, nil) {
			return errDone
		}
		return nil
	})
	if err != nil && !errors.Is(err, errDone) {
		yield(store.ImportLine{}, err)
	}
}

var errDone = errors.New("done")

// scan calls fn for each line that is not empty. It returns errors as ImportError with the line's number.
func (in *importer) scan(r io.Reader, fn func(line []byte) error) error {
	limited := &io.LimitedReader{R: r, N: in.limit + 1}
	lines := bufio.NewScanner(limited)
	lines.Buffer(make([]byte, 0, 64<<10), MaxImportLine)
	n := 0
	for lines.Scan() {
		n++
		line := bytes.TrimSpace(lines.Bytes())
		if n == 1 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf")) // a byte order mark, which some editors write
		}
		if limited.N <= 0 {
			break
		}
		if len(line) == 0 {
			continue
		}
		if !utf8.Valid(line) {
			return &ImportError{n, "it is not UTF-8"}
		}
		err := fn(line)
		switch {
		case err == nil:
		case errors.Is(err, errDone), errors.Is(err, errSpool):
			return err
		default:
			return &ImportError{n, err.Error()}
		}
	}
	switch err := lines.Err(); {
	case limited.N <= 0:
		return invalid("body", "it has more than %d bytes, the limit of an import: split the conversation", in.limit)
	case errors.Is(err, bufio.ErrTooLong):
		return &ImportError{n + 1, fmt.Sprintf("it has more than %d bytes", MaxImportLine)}
	default:
		return err
	}
}
