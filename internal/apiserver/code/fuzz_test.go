package code

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/sandbox"
)

// FuzzMessages passes any two texts as the messages of a client that attends code: the one with which it begins, and one while its code runs
// and waits for the first of two calls. A message is taken or refused with a reason, and answers no call but the one that it names.
func FuzzMessages(f *testing.F) {
	const begin = `{"type":"run","run":{"source":"export default 1","execute":{"fn":"f","args":[{"$date":0}]},"globals":{"g":{"$map":[[1,2]]}},"imports":{"a":{"x":1}},` +
		`"functions":[{"name":"ask"},{"import":"b","name":"tell"}],"wallTime":"5s"}}`
	for _, then := range []string{
		`{"type":"return","id":1,"value":{"$bigint":"7"}}`, `{"type":"return","id":1}`, `{"type":"return","id":1,"value":{"$set":0}}`, `{"type":"throw","id":2,"error":{"name":"E","message":"m"}}`,
		`{"type":"throw","id":1}`, `{"type":"terminate"}`, `{"type":"return","id":3}`, `{"type":"return","id":-1}`, `{"type":"run"}`, `{}`, `null`, `{"type":"return","type":"throw"}`,
	} {
		f.Add([]byte(begin), []byte(then))
	}
	for _, first := range []string{
		`{"type":"run"}`, `{"type":"run","run":null}`, `{"type":"run","run":{"source":""}}`, `{"type":"run","run":{"source":"1","functions":[{"name":"g"},{"name":"g"}]}}`,
		`{"type":"run","run":{"source":"1","globals":{"g":1},"functions":[{"name":"g"}]}}`, `{"type":"run","run":{"source":"1","imports":{"a":null},"functions":[{"import":"a","name":""}]}}`,
		`{"type":"run","run":{"source":"1","memoryLimitBytes":-1}}`, `[]`, ``,
	} {
		f.Add([]byte(first), []byte(`{"type":"terminate","reason":"enough"}`))
	}
	f.Fuzz(func(t *testing.T, first, then []byte) {
		answered, other := make(chan reply, 1), make(chan reply, 1)
		a := &attendance{call: &call.Call{Name: "thread", Request: httptest.NewRequest(http.MethodGet, "/", nil)}, waiting: map[int64]chan reply{1: answered, 2: other}, lastID: 2}
		a.ctx, a.end = context.WithCancelCause(context.Background())
		defer a.end(nil)
		var m runtimev1.CodeClientMessage
		if err := call.DecodeStrict("thread", first, &m); err != nil {
			checkRefused(t, err)
		} else if req, err := a.request(m.Run); err != nil {
			checkRefused(t, err)
		} else if req.Source == "" {
			t.Fatalf("%s is taken without a source", first)
		} else {
			checkFunctions(t, m.Run, req)
		}

		m = runtimev1.CodeClientMessage{}
		if err := call.DecodeStrict("thread", then, &m); err != nil {
			checkRefused(t, err)
			return
		}
		err := a.take(&m, 0)
		if err != nil {
			var v *violation
			if !errors.As(err, &v) || err.Error() == "" {
				t.Fatalf("%s is refused with %v", then, err)
			}
		}
		named := m.Type == runtimev1.CodeMessageReturn || m.Type == runtimev1.CodeMessageThrow
		if got := len(answered) == 1; got != (named && m.ID == 1) {
			t.Fatalf("%s: call 1 is answered: %t", then, got)
		}
		if got := len(other) == 1; got != (named && m.ID == 2) {
			t.Fatalf("%s: call 2 is answered: %t", then, got)
		}
		if ended := a.ctx.Err() != nil; ended != (m.Type == runtimev1.CodeMessageTerminate) {
			t.Fatalf("%s: the code is ended: %t", then, ended)
		}
	})
}

func checkRefused(t *testing.T, err error) {
	t.Helper()
	var refused *apierrors.StatusError
	if !errors.As(err, &refused) || refused.ErrStatus.Code >= 500 || refused.ErrStatus.Message == "" {
		t.Fatalf("refused with %#v", err)
	}
}

// checkFunctions checks that each function of a client can be called.
func checkFunctions(t *testing.T, run json.RawMessage, req sandbox.CodeRequest) {
	t.Helper()
	var in runtimev1.CodeRun
	if err := call.DecodeStrict("thread", run, &in); err != nil {
		t.Fatal(err)
	}
	for _, f := range in.Functions {
		bindings := req.Globals
		if f.Import != "" {
			bindings = req.Imports[f.Import]
		}
		if bindings[f.Name].Func == nil {
			t.Fatalf("%s: the function %q of %q cannot be called", run, f.Name, f.Import)
		}
	}
}
