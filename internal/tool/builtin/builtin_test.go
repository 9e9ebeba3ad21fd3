package builtin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
	"github.com/skein-dev/skein/internal/tool/builtin"
)

func TestBuiltin(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Built-in tools")
}

var _ = Describe("Built-in tools", Label("TOL-02"), func() {
	var h *tool.Host
	ctx := context.Background()
	BeforeEach(func() {
		dir := GinkgoT().TempDir()
		s, err := sqlstore.OpenSQLite(ctx, sqlstore.SQLiteOptions{Dir: dir})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(s.Close)
		b, err := thread.OpenBucket(ctx, "file://"+dir+"/blobs")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(b.Close)
		threads := thread.NewService(thread.Options{Store: s, Blobs: b})
		t, _, err := threads.Create(ctx, thread.NewThread{Thread: store.Thread{ID: uuid.NewString(), Namespace: "n", Name: "t", Agent: "a"}})
		Expect(err).NotTo(HaveOccurred())
		st, err := threads.Open(ctx, t.ID)
		Expect(err).NotTo(HaveOccurred())
		h = &tool.Host{Thread: t, State: st, Threads: threads}
	})
	call := func(family skeinv1.BuiltinTool, name string, args any) tool.Result {
		GinkgoHelper()
		tools, err := builtin.Family(ctx, family, h)
		Expect(err).NotTo(HaveOccurred())
		set, err := tool.NewSet(tools...)
		Expect(err).NotTo(HaveOccurred())
		text, err := json.Marshal(args)
		Expect(err).NotTo(HaveOccurred())
		return set.Call(ctx, tool.Call{ID: "call_1", Name: name, Arguments: text})
	}
	write := func(path, content string) {
		GinkgoHelper()
		_, err := h.State.WriteFile(ctx, path, strings.NewReader(content), thread.WriteFileOptions{})
		Expect(err).NotTo(HaveOccurred())
	}
	type args map[string]any

	It("read files in parts that split no character", func() {
		write("/u.txt", strings.Repeat("ä€😀", 3)) // 9 bytes each
		var all string
		offset := 0
		for range 20 {
			r := call(skeinv1.BuiltinFiles, "read_file", args{"path": "/u.txt", "offset": offset, "maxBytes": 5})
			Expect(r.Status).To(Equal(tool.StatusSuccess))
			part, note, more := strings.Cut(r.Content, "\n[")
			all += part
			if !more {
				break
			}
			Expect(note).To(MatchRegexp(`^\d of 27 bytes; read on with offset \d+]$`))
			_, err := fmt.Sscanf(note[strings.Index(note, "offset"):], "offset %d]", &offset)
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(all).To(Equal(strings.Repeat("ä€😀", 3)))
	})

	It("report what is wrong with a file", func() {
		write("/b.bin", "a\x00b")
		Expect(call(skeinv1.BuiltinFiles, "read_file", args{"path": "/b.bin"}).Content).To(ContainSubstring("not a text file"))
		Expect(call(skeinv1.BuiltinFiles, "read_file", args{"path": "/b.bin", "offset": 9}).Content).To(ContainSubstring("behind its end"))
		Expect(call(skeinv1.BuiltinFiles, "read_file", args{"path": "/none"}).Content).To(ContainSubstring("there is no file /none"))
		Expect(call(skeinv1.BuiltinFiles, "write_file", args{"path": "/../x", "content": ""}).Content).To(ContainSubstring(`without ".."`))
		Expect(call(skeinv1.BuiltinFiles, "delete_file", args{"path": "/none"}).Content).To(MatchJSON(`{"deleted":false,"path":"/none"}`))
	})

	It("list, find, search and delete files", func() {
		write("/a.csv", "x,1\ny,2\n")
		write("/d/b.txt", "y again")
		Expect(call(skeinv1.BuiltinFiles, "list_files", nil).Content).To(MatchJSON(`{"files":[{"path":"/a.csv","size":8,"mimeType":"text/csv"},{"path":"/d","size":0,"isDirectory":true},{"path":"/d/b.txt","size":7,"mimeType":"text/plain"}]}`))
		Expect(call(skeinv1.BuiltinFiles, "find_files", args{"pattern": "*.txt"}).Content).To(MatchJSON(`{"paths":["/d/b.txt"],"truncated":false}`))
		Expect(call(skeinv1.BuiltinFiles, "grep_files", args{"pattern": "^y"}).Content).To(MatchJSON(`{"results":[{"path":"/a.csv","matches":[{"line":2,"content":"y,2"}]},{"path":"/d/b.txt","matches":[{"line":1,"content":"y again"}]}],"truncated":false}`))
		Expect(call(skeinv1.BuiltinFiles, "grep_files", args{"pattern": "("}).Status).To(Equal(tool.StatusError))
		Expect(call(skeinv1.BuiltinFiles, "delete_file", args{"path": "/a.csv"}).Content).To(MatchJSON(`{"deleted":true,"path":"/a.csv"}`))
		Expect(call(skeinv1.BuiltinFiles, "list_files", args{"prefix": "/", "recursive": false}).Content).To(MatchJSON(`{"files":[{"path":"/d","size":0,"isDirectory":true}]}`))
	})

	It("keep values", func() {
		Expect(call(skeinv1.BuiltinKV, "get_value", args{"key": "k"}).Content).To(Equal("null"))
		Expect(call(skeinv1.BuiltinKV, "set_value", args{"key": "k", "value": args{"n": 1}}).Status).To(Equal(tool.StatusSuccess))
		Expect(call(skeinv1.BuiltinKV, "get_value", args{"key": "k"}).Content).To(MatchJSON(`{"n":1}`))
		Expect(call(skeinv1.BuiltinKV, "set_value", args{"key": "k", "value": nil}).Status).To(Equal(tool.StatusSuccess))
		Expect(call(skeinv1.BuiltinKV, "get_value", args{"key": "k"}).Content).To(Equal("null"))
	})

	It("schedule effects under the call's id", Label("EFF-01"), func() {
		e := &effects{}
		h.Effects = e
		Expect(call(skeinv1.BuiltinEffects, "schedule_effect", args{"name": "pkg/remind", "args": args{"a": 1}, "delayMs": 1500}).Content).To(MatchJSON(`{"id":"id-call_1","name":"pkg/remind","delayMs":1500}`))
		Expect(e.delay).To(Equal(1500 * time.Millisecond))
		Expect(call(skeinv1.BuiltinEffects, "list_effects", nil).Content).To(MatchJSON(`{"effects":[{"id":"id-call_1","name":"pkg/remind","args":{"a":1},"scheduledAt":1,"createdAt":0}]}`))
		Expect(call(skeinv1.BuiltinEffects, "cancel_effect", args{"id": "id-call_1"}).Content).To(MatchJSON(`{"removed":true,"id":"id-call_1"}`))
		Expect(call(skeinv1.BuiltinEffects, "schedule_effect", args{"name": "no such name!"}).Status).To(Equal(tool.StatusError))
		Expect(call(skeinv1.BuiltinEffects, "schedule_effect", args{"name": "broken"}).Content).To(Equal("no such effect"))
	})

	It("run code with the requested globals only", func() {
		c := &coder{}
		h.Code = c
		c.result = sandbox.Result{Status: sandbox.StatusSuccess, Value: map[string]any{"b": []byte("xy"), "n": 1.5}, Duration: 3 * time.Millisecond,
			Logs: []sandbox.Log{{Level: "info", Message: "hi"}}, Reports: []any{1.0}}
		Expect(call(skeinv1.BuiltinCode, "run_code", args{"source": "x", "args": []int{1, 2}}).Content).To(MatchJSON(
			`{"status":"success","result":{"b":"eHk=","n":1.5},"reports":[1],"logs":["info: hi"],"durationMs":3}`))
		Expect(c.req.Args).To(Equal([]any{1.0, 2.0}))
		Expect(c.req.Globals).To(HaveLen(3))
		call(skeinv1.BuiltinCode, "run_code", args{"source": "x", "args": "one", "files": false})
		Expect(c.req.Args).To(Equal([]any{"one"}))
		Expect(c.req.Globals).To(BeEmpty())

		c.result = sandbox.Result{Status: sandbox.StatusLinkError, Error: &sandbox.Error{Name: "SyntaxError", Message: "unexpected", Line: 2, Column: 7}}
		r := call(skeinv1.BuiltinCode, "run_code", args{"source": "x"})
		Expect(r.Status).To(Equal(tool.StatusError))
		Expect(r.Content).To(MatchJSON(`{"status":"link_error","error":{"name":"SyntaxError","message":"unexpected","stack":"at line 2, column 7"},"durationMs":0}`))

		c.err = errors.New("none left")
		Expect(call(skeinv1.BuiltinCode, "run_code", args{"source": "x"}).Content).To(Equal("no sandbox could be had for the code: none left"))
	})

	It("let code use the files of the thread, and refuse invalid paths", func() {
		c := &coder{}
		h.Code = c
		write("/a.txt", "text")
		call(skeinv1.BuiltinCode, "run_code", args{"source": "x"})
		read := c.req.Globals["readFile"].Func
		Expect(read(ctx, []any{"/a.txt"})).To(Equal("text"))
		Expect(read(ctx, []any{"/none"})).To(BeNil())
		_, err := read(ctx, []any{7.0})
		Expect(err).To(MatchError(ContainSubstring("argument 1 must be a string")))
		_, err = read(ctx, []any{"/../../etc/passwd"})
		Expect(err).To(HaveOccurred())
		_, err = c.req.Globals["writeFile"].Func(ctx, []any{"/b.txt", "new"})
		Expect(err).NotTo(HaveOccurred())
		rc, _, err := h.State.OpenFile(ctx, "/b.txt")
		Expect(err).NotTo(HaveOccurred())
		defer rc.Close()
		var b bytes.Buffer
		_, err = b.ReadFrom(rc)
		Expect(err).NotTo(HaveOccurred())
		Expect(b.String()).To(Equal("new"))
	})
})

// effects stores one effect.
type effects struct {
	list  []tool.ScheduledEffect
	delay time.Duration
}

func (e *effects) Schedule(_ context.Context, cause, name string, a json.RawMessage, delay time.Duration) (string, error) {
	if name == "broken" {
		return "", errors.New("no such effect")
	}
	e.delay = delay
	e.list = append(e.list, tool.ScheduledEffect{ID: "id-" + cause, Name: name, Args: a, ScheduledAt: 1})
	return "id-" + cause, nil
}

func (e *effects) List(context.Context, string) ([]tool.ScheduledEffect, error) { return e.list, nil }

func (e *effects) Remove(_ context.Context, id string) (bool, error) { return e.list[0].ID == id, nil }

// coder records what it was asked to run.
type coder struct {
	tool.Code
	req    sandbox.CodeRequest
	result sandbox.Result
	err    error
}

func (c *coder) RunCode(_ context.Context, req sandbox.CodeRequest) (sandbox.Result, error) {
	c.req = req
	return c.result, c.err
}
