package convert

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/skein-dev/skein/internal/scratch"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest"
	"github.com/skein-dev/skein/internal/store/storetest/sqlitetest"
	"github.com/skein-dev/skein/internal/thread"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// Fields of a message that do not travel everywhere, and why. A new field is in none of these, so the tests below fail until each
// place has it, or until it is added here.
var (
	// notExported are not in the format of exports, docs/export.md.
	notExported = []string{
		"ID", "Seq", // given anew
		"Status",                                                                                                // completed
		"ParentID", "Metadata", "Attachments", "ToolCallID", "ToolStatus", "ReasoningContent", "RunID", "Usage", // left out
		"Depth", "ToolCalls", "Summary", // such messages have no line, or other lines
	}
	// notWritten are set by Skein alone in messages of clients.
	notWritten = []string{"Side", "RunID", "Usage", "Summary"}
	// notDescribed are no part of a request: the doors set them.
	notDescribed = []string{"Digest", "Unpark", "FromSystem"}
)

// A message in which no field is empty comes back from the store, from the inbox and from a fork as it was, and an answer of the
// API has all of it.
func TestEachFieldOfAMessageIsKeptAndAnswered(t *testing.T) {
	ctx := t.Context()
	threads := newThreads(t)
	st := newThread(t, threads, "t")
	first := &store.Message{ID: "first", Role: store.RoleUser, Content: new(string)}
	m := storetest.Filled[store.Message]()
	m.Role, m.Status, m.Summary.From, m.Summary.To = store.RoleAssistant, store.MessageFailed, first.ID, first.ID
	if empty := storetest.Unset(m); len(empty) > 0 {
		t.Fatalf("the message has the empty fields %q", empty)
	}
	given := m
	if err := st.Apply(ctx, &store.AppendMessage{Message: first}, &store.AppendMessage{Message: &given}); err != nil {
		t.Fatal(err)
	}
	m.Seq, m.Summary.FromSeq, m.Summary.ToSeq = given.Seq, first.Seq, first.Seq // the store assigns these
	stored, err := st.Message(ctx, m.ID)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "the store", m, *stored)

	var queued store.Message // as the inbox holds it
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &queued); err != nil {
		t.Fatal(err)
	}
	queued.Seq = m.Seq
	same(t, "the inbox", m, queued)

	if _, _, err := threads.Fork(ctx, thread.NewThread{Thread: store.Thread{ID: "fork", Name: "fork"}}, thread.ForkOf{ThreadID: "t", Newest: true}); err != nil {
		t.Fatal(err)
	}
	forked, err := threads.Open(ctx, "fork")
	if err != nil {
		t.Fatal(err)
	}
	if stored, err = forked.Message(ctx, m.ID); err != nil {
		t.Fatal(err)
	}
	same(t, "a fork", m, *stored)

	answered, record := fields(t, Message(&m)), fields(t, m)
	delete(record["summary"].(map[string]any), "fromSeq") // the sequence numbers of the store are not shown
	delete(record["summary"].(map[string]any), "toSeq")
	for name := range record {
		if !reflect.DeepEqual(answered[name], record[name]) {
			t.Errorf("the field %s of a message is %v in an answer of the API, but it is %v", name, answered[name], record[name])
		}
	}
	for name := range answered {
		if _, ok := record[name]; !ok {
			t.Errorf("an answer of the API has the field %s, which the record store.Message lacks", name)
		}
	}
}

// A message has the same fields after an export and an import, but for those that the format leaves out.
func TestEachFieldOfAMessageIsExportedOrLeftOut(t *testing.T) {
	ctx := t.Context()
	threads := newThreads(t)
	from, into := newThread(t, threads, "from"), newThread(t, threads, "into")
	m := storetest.Filled[store.Message]()
	m.Role, m.Status, m.Side = store.RoleAssistant, store.MessageFailed, "b"
	m.Depth, m.ToolCalls, m.Summary = 0, nil, nil // with these it would have no line, or other lines
	given := m
	if err := from.Apply(ctx, &store.AppendMessage{Message: &given}); err != nil {
		t.Fatal(err)
	}
	var lines bytes.Buffer
	if _, err := from.Export(ctx, &lines); err != nil {
		t.Fatal(err)
	}
	if _, err := into.Import(ctx, &lines); err != nil {
		t.Fatal(err)
	}
	page, err := into.Messages(ctx, store.MessageQuery{IncludeSilent: true})
	if err != nil || len(page.Messages) != 1 {
		t.Fatalf("the import has the messages %v: %v", page, err)
	}
	was, is := reflect.ValueOf(m), reflect.ValueOf(page.Messages[0])
	for i := range was.NumField() {
		name := was.Type().Field(i).Name
		kept := !was.Field(i).IsZero() && reflect.DeepEqual(was.Field(i).Interface(), is.Field(i).Interface())
		if left := slices.Contains(notExported, name); kept == left {
			t.Errorf("the field %s of a message: kept by an export and an import: %t, listed as not exported: %t", name, kept, left)
		}
	}
}

// Each field that a client may set is in the message that it writes, and each field of a message may be set or is set by Skein
// alone.
func TestEachFieldOfAMessageIsWritten(t *testing.T) {
	ctx := t.Context()
	st := newThread(t, newThreads(t), "t")
	wire := storetest.Filled[runtimev1.NewMessage]()
	wire.Role, wire.Status, wire.ToolStatus = runtimev1.RoleTool, runtimev1.MessageFailed, "error"
	if _, err := st.WriteFile(ctx, "/filled", strings.NewReader("1234567"), thread.WriteFileOptions{}); err != nil {
		t.Fatal(err)
	}
	wire.Attachments = []runtimev1.Attachment{{Path: "/filled", Name: "filled", MimeType: "application/octet-stream", Size: 7}}
	n := NewMessage(&wire)
	if empty := storetest.Unset(n); !slices.Equal(empty, notDescribed) {
		t.Errorf("NewMessage leaves %q empty, expected %q", empty, notDescribed)
	}
	m, err := st.Inject(ctx, n)
	if err != nil {
		t.Fatal(err)
	}
	if empty := storetest.Unset(*m); !slices.Equal(empty, notWritten) {
		t.Errorf("a message that a client writes has the empty fields %q, expected %q", empty, notWritten)
	}
	answered := fields(t, Message(m))
	for name, value := range fields(t, wire) {
		if name == "policy" || name == "idempotencyKey" {
			continue // of the request, not of the message
		}
		if !reflect.DeepEqual(answered[name], value) {
			t.Errorf("the field %s of a message is %v, but the client wrote %v", name, answered[name], value)
		}
	}
}

func newThreads(t *testing.T) *thread.Service {
	t.Helper()
	dir := scratch.Folder(t)
	s, err := sqlitetest.Open(t.Context(), sqlstore.SQLiteOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := thread.OpenBucket(t.Context(), "file://"+dir+"/blobs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := bucket.Close(); err != nil {
			t.Error(err)
		}
	})
	return thread.NewService(thread.Options{Store: s, Blobs: bucket})
}

func newThread(t *testing.T, threads *thread.Service, id string) *thread.State {
	t.Helper()
	if _, _, err := threads.Create(t.Context(), thread.NewThread{Thread: store.Thread{ID: id, Namespace: "n", Name: id, Agent: "a"}}); err != nil {
		t.Fatal(err)
	}
	st, err := threads.Open(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// same fails the test for each field in which two messages differ.
func same(t *testing.T, where string, want, got store.Message) {
	t.Helper()
	w, g := reflect.ValueOf(want), reflect.ValueOf(got)
	for i := range w.NumField() {
		if !reflect.DeepEqual(w.Field(i).Interface(), g.Field(i).Interface()) {
			t.Errorf("the field %s of a message from %s is %v, but it was %v", w.Type().Field(i).Name, where, g.Field(i), w.Field(i))
		}
	}
}

// fields returns the fields of a value as JSON has them.
func fields(t *testing.T, v any) map[string]any {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}
