package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
)

var _ = Describe("The memory that namespaces share", Label("K8S-12"), func() {
	var e *testEnv
	var budget *membudget.Budget
	var st *thread.State
	var hold func(left int64) (letGo func())

	BeforeEach(func() {
		budget = membudget.New(64<<20, time.Millisecond)
		e = newEnv(func(o *Options) { o.Memory = budget })
		st, _ = e.thread("t")
		// hold takes what the namespace may have, but for left bytes.
		hold = func(left int64) func() {
			a := budget.Open("ns")
			Expect(a.TryDraw(32<<20 - left)).To(Succeed())
			return a.Close
		}
	})

	refused := func(resp *http.Response, body string) {
		GinkgoHelper()
		Expect(resp.StatusCode).To(Equal(http.StatusTooManyRequests), body)
		Expect(resp.Header.Get("Retry-After")).To(Equal("1"))
		Expect(body).To(And(ContainSubstring(`"reason":"Memory"`), ContainSubstring(`the namespace \"ns\" already takes`), ContainSubstring("try again later")))
	}

	It("is drawn for pages, and returned with the answer", func(ctx SpecContext) {
		_, err := st.Inject(ctx, message("hello"))
		Expect(err).NotTo(HaveOccurred())
		letGo := hold(1 << 20)
		refused(e.do("GET", at("t", "/messages"), nil))
		letGo()
		resp, _ := e.do("GET", at("t", "/messages"), nil)
		Expect(resp.StatusCode).To(Equal(http.StatusOK))
		Eventually(budget.Used).Should(BeZero())
	})

	It("is drawn for searches, whose pages end early when their messages are large", Label("THR-16"), func(ctx SpecContext) {
		for range 12 {
			_, err := st.Inject(ctx, message("word "+strings.Repeat("x", 1000<<10)))
			Expect(err).NotTo(HaveOccurred())
		}
		const search = "/apis/runtime.skein.dev/v1alpha1/searches?q=word&limit=1000"
		a := budget.Open("") // a search belongs to no namespace
		Expect(a.TryDraw(30 << 20)).To(Succeed())
		resp, body := e.do("GET", search, nil)
		Expect(resp.StatusCode).To(Equal(http.StatusTooManyRequests), body)
		a.Close()
		resp, body = e.do("GET", search, nil)
		Expect(resp.StatusCode).To(Equal(http.StatusOK))
		Expect(len(body)).To(BeNumerically("<", 9<<20))
		Expect(body).To(ContainSubstring(`"hasMore":true`))
		Expect(strings.Count(body, `"snippet":`)).To(Equal(8))
		Eventually(budget.Used).Should(BeZero())
	})

	It("is drawn for the queue and for what a thread's record shows of it, however much waits", Label("MSG-05"), func(ctx SpecContext) {
		text := strings.Repeat("x", 250<<10)
		for range 100 {
			_, err := st.Queue(ctx, thread.NewMessage{Role: store.RoleSystem, Content: &text, FromSystem: true})
			Expect(err).NotTo(HaveOccurred())
		}
		letGo := hold(512 << 10)
		for _, path := range []string{"/queue", "/messages", ""} {
			refused(e.do("GET", at("t", path), nil))
		}
		letGo()
		for path, most := range map[string]int{"/queue?limit=1000": 8, "/messages?limit=1000": 8, "": 1} {
			resp, body := e.do("GET", at("t", path), nil)
			Expect(resp.StatusCode).To(Equal(http.StatusOK), path)
			Expect(len(body)).To(And(BeNumerically("<=", most<<20+8<<10), BeNumerically(">", most<<19)), path)
		}
		_, body := e.do("GET", at("t", "/queue?limit=1000&offset=90"), nil)
		Expect(strings.Count(body, `"status":"pending"`)).To(Equal(10))
		Expect(body).To(And(ContainSubstring(`"total":100`), ContainSubstring(`"hasMore":false`)))
		Eventually(budget.Used).Should(BeZero())
	})

	It("is drawn for lists of runs, whose pages end early when their session states are large", Label("STA-01"), func(ctx SpecContext) {
		state := json.RawMessage(`{"a":"` + strings.Repeat("x", 900<<10) + `"}`)
		for i := range 30 {
			Expect(st.Apply(ctx, &store.PutRun{Run: store.Run{ID: fmt.Sprint("r", i), Status: store.RunSucceeded, SessionState: state}})).To(Succeed())
		}
		letGo := hold(1 << 20)
		refused(e.do("GET", at("t", "/runs"), nil))
		letGo()
		resp, body := e.do("GET", at("t", "/runs?limit=1000"), nil)
		Expect(resp.StatusCode).To(Equal(http.StatusOK))
		Expect(len(body)).To(And(BeNumerically("<", 9<<20), BeNumerically(">", 7<<20)))
		Expect(body).To(ContainSubstring(`"hasMore":true`))
		_, body = e.do("GET", at("t", "/runs?limit=1000&offset=27"), nil)
		Expect(body).To(And(ContainSubstring(`"id":"r0"`), ContainSubstring(`"hasMore":false`)))
		Eventually(budget.Used).Should(BeZero())
	})

	It("is drawn for lists of children, effects and orphans, and effects come in pages that end early", Label("SUB-01", "EFF-01"), func(ctx SpecContext) {
		args := json.RawMessage(`{"a":"` + strings.Repeat("x", 900<<10) + `"}`)
		for i := range 30 {
			e.effects.pending = append(e.effects.pending, ports.ScheduledEffect{ID: fmt.Sprint("e", i), Name: "later", Args: args})
		}
		e.children = append(e.children, skeinv1.ChildStatus{Reference: "child"})
		const orphans = "/apis/runtime.skein.dev/v1alpha1/namespaces/ns/orphans"
		letGo := hold(1 << 20)
		for _, path := range []string{at("t", "/effects"), at("t", "/children"), orphans} {
			refused(e.do("GET", path, nil))
		}
		Expect(e.effects.pages).To(BeZero(), "memory is drawn before the arguments are read")
		letGo()
		var ids []string
		for more := true; more; {
			_, body := e.do("GET", at("t", fmt.Sprintf("/effects?limit=1000&offset=%d", len(ids))), nil)
			Expect(len(body)).To(BeNumerically("<", 10<<20))
			var page runtimev1.EffectList
			Expect(json.Unmarshal([]byte(body), &page)).To(Succeed())
			for _, effect := range page.Effects {
				ids = append(ids, effect.ID)
			}
			more = page.HasMore
		}
		Expect(ids).To(HaveLen(30))
		Expect(slices.Compact(ids)).To(And(HaveLen(30), HaveEach(HavePrefix("e"))))
		for _, path := range []string{at("t", "/children"), orphans} {
			resp, body := e.do("GET", path, nil)
			Expect(resp.StatusCode).To(Equal(http.StatusOK), body)
		}
		Eventually(budget.Used).Should(BeZero())
	})

	It("is drawn for lists of threads, whose pages end early when their fields are large", Label("THR-09", "THR-15"), func(ctx SpecContext) {
		const root = "/apis/runtime.skein.dev/v1alpha1/namespaces/ns/"
		letGo := hold(1 << 20)
		for _, path := range []string{"history", "retained"} {
			refused(e.do("GET", root+path, nil))
		}
		letGo()
		tree := json.RawMessage(`{"a":"` + strings.Repeat("x", 15<<10) + `"}`)
		ids := []string{st.ID()}
		for i := range 12 {
			large, _ := e.thread(fmt.Sprint("large-", i))
			Expect(large.Apply(ctx, &store.UpdateThread{EditFields: func(f *store.Fields) error {
				f.Workspace = &store.Workspace{Trees: slices.Repeat([]json.RawMessage{tree}, 100)}
				return nil
			}})).To(Succeed())
			ids = append(ids, large.ID())
		}
		pages := func(path string, read func(body string) (next string)) {
			GinkgoHelper()
			count := 0
			for next := ""; ; {
				resp, body := e.do("GET", root+path+"?limit=1000"+next, nil)
				Expect(resp.StatusCode).To(Equal(http.StatusOK))
				Expect(len(body)).To(BeNumerically("<", 9<<20))
				count++
				if next = read(body); next == "" {
					break
				}
			}
			Expect(count).To(Equal(3), "five threads of a mebibyte and a half in a page")
		}
		var listed []string
		pages("history", func(body string) (next string) {
			var list runtimev1.ThreadHistoryList
			Expect(json.Unmarshal([]byte(body), &list)).To(Succeed())
			for _, item := range list.Items {
				listed = append(listed, item.ThreadID)
			}
			if list.HasMore {
				next = "&continue=" + list.Continue
			}
			return next
		})
		Expect(listed).To(ConsistOf(ids))
		for _, id := range ids {
			Expect(e.svc.Store().Apply(ctx, id, nil, &store.Retain{})).To(Succeed())
		}
		var kept []string
		pages("retained", func(body string) (next string) {
			var list runtimev1.RetainedList
			Expect(json.Unmarshal([]byte(body), &list)).To(Succeed())
			for _, item := range list.Threads {
				kept = append(kept, item.ThreadID)
			}
			if list.HasMore {
				next = "&after=" + kept[len(kept)-1]
			}
			return next
		})
		Expect(kept).To(ConsistOf(ids))
		Eventually(budget.Used).Should(BeZero())
	})

	It("is drawn for calls that wait for approval, whose pages end early when their arguments are large", Label("RUN-11"), func(ctx SpecContext) {
		letGo := hold(1 << 20)
		refused(e.do("GET", at("t", "/approvals"), nil))
		letGo()
		waits := map[string]any{}
		for i := range 12 {
			id, text := fmt.Sprint("m", i), ""
			calls := []store.ToolCall{{ID: fmt.Sprint("call-", i), Name: "pay", Arguments: `{"a":"` + strings.Repeat("x", 900<<10) + `"}`}}
			Expect(st.Apply(ctx, &store.AppendMessage{Message: &store.Message{ID: id, Role: store.RoleAssistant, Content: &text, ToolCalls: calls}})).To(Succeed())
			waits[calls[0].ID] = tool.Wait{Kind: tool.WaitApproval, Since: int64(i + 1), MessageID: id}
		}
		state, err := json.Marshal(map[string]any{"waits": waits})
		Expect(err).NotTo(HaveOccurred())
		Expect(st.Apply(ctx, &store.PutRun{Run: store.Run{ID: "r", Status: store.RunWaiting, State: state}})).To(Succeed())
		resp, body := e.do("GET", at("t", "/approvals?limit=1000"), nil)
		Expect(resp.StatusCode).To(Equal(http.StatusOK))
		Expect(len(body)).To(And(BeNumerically("<", 9<<20), BeNumerically(">", 7<<20)))
		Expect(body).To(ContainSubstring(`"hasMore":true`))
		_, body = e.do("GET", at("t", "/approvals?limit=1000&offset=10"), nil)
		Expect(body).To(And(ContainSubstring(`"call-10"`), ContainSubstring(`"call-11"`), ContainSubstring(`"hasMore":false`)))
		Eventually(budget.Used).Should(BeZero())
	})

	It("is drawn for lists of files, whose pages end early when their metadata is large", Label("FIL-04", "FIL-05"), func(ctx SpecContext) {
		letGo := hold(1 << 20)
		for _, query := range []string{"", "?recursive=true", "?dir=/", "?glob=*"} {
			refused(e.do("GET", at("t", "/files"+query), nil))
		}
		letGo()
		metadata := json.RawMessage(`{"a":"` + strings.Repeat("x", 900<<10) + `"}`)
		for i := range 12 {
			Expect(st.Apply(ctx, &store.PutFile{File: store.File{Path: fmt.Sprintf("/in/f%02d", i), Digest: strings.Repeat("a", 64), Metadata: metadata},
				Object: "contents/a", Uploaded: time.Now().UnixMicro()})).To(Succeed())
		}
		for _, query := range []string{"?dir=/in", "?prefix=/in", "?prefix=/in&recursive=true", "?glob=/in/*"} {
			var paths []string
			for more := true; more; {
				resp, body := e.do("GET", at("t", fmt.Sprintf("/files%s&limit=1000&offset=%d", query, len(paths))), nil)
				Expect(resp.StatusCode).To(Equal(http.StatusOK), query)
				Expect(len(body)).To(BeNumerically("<", 9<<20), query)
				var page runtimev1.FileList
				Expect(json.Unmarshal([]byte(body), &page)).To(Succeed())
				for _, f := range page.Files {
					paths = append(paths, f.Path)
				}
				more = page.HasMore
			}
			Expect(slices.Compact(paths)).To(And(HaveLen(12), HaveEach(HavePrefix("/in/f"))), query)
		}
		Eventually(budget.Used).Should(BeZero())
	})

	It("is drawn for bodies, by what their JSON takes once it is decoded", func(ctx SpecContext) {
		bomb := `{"role":"user","content":"x","metadata":{"bomb":[` + strings.Repeat("{},", 100_000) + `{}]}}`
		resp, body := e.do("POST", at("t", "/messages"), strings.NewReader(bomb), "Content-Type", "application/json")
		Expect(resp.StatusCode).To(Equal(http.StatusRequestEntityTooLarge), body)
		Expect(body).To(And(ContainSubstring("more than the 32 MiB that a namespace can have"), ContainSubstring(`"reason":"Memory"`)))

		letGo := hold(64 << 10)
		refused(e.do("POST", at("t", "/messages"), strings.NewReader(`{"role":"user","content":"`+strings.Repeat("x", 100<<10)+`"}`), "Content-Type", "application/json"))
		letGo()
		resp, body = e.do("POST", at("t", "/messages"), strings.NewReader(`{"role":"user","content":"`+strings.Repeat("x", 100<<10)+`"}`), "Content-Type", "application/json")
		Expect(resp.StatusCode).To(Equal(http.StatusCreated), body)
		Eventually(budget.Used).Should(BeZero())
	})

	It("is drawn for files", func() {
		letGo := hold(64 << 10)
		refused(e.do("PUT", at("t", "/files/a.txt"), strings.NewReader("text")))
		letGo()
		resp, _ := e.do("PUT", at("t", "/files/a.txt"), strings.NewReader("text"))
		Expect(resp.StatusCode).To(Equal(http.StatusCreated))
		letGo = hold(64 << 10)
		defer letGo()
		refused(e.do("GET", at("t", "/files/a.txt"), nil))
	})

	It("is drawn for exports and imports", func(ctx SpecContext) {
		_, err := st.Inject(ctx, message("hello"))
		Expect(err).NotTo(HaveOccurred())
		e.thread("into")
		resp, lines := e.do("GET", at("t", "/export"), nil)
		Expect(resp.StatusCode).To(Equal(http.StatusOK))
		letGo := hold(64 << 10)
		refused(e.do("GET", at("t", "/export"), nil))
		refused(e.do("POST", at("into", "/import"), strings.NewReader(lines)))
		letGo()
		letGo = hold(2 << 20)
		refused(e.do("POST", at("into", "/import"), strings.NewReader(lines+`{"type":"result","x":[`+strings.Repeat("{},", 10_000)+"{}]}\n")))
		letGo()
		resp, body := e.do("POST", at("into", "/import"), strings.NewReader(lines))
		Expect(resp.StatusCode).To(Equal(http.StatusCreated), body)
		Eventually(budget.Used).Should(BeZero())
	})

	It("is drawn for backups and restores", Label("K8S-09"), func() {
		const root = "/apis/runtime.skein.dev/v1alpha1/namespaces/ns/"
		letGo := hold(64 << 10)
		refused(e.do("GET", root+"backups", nil))
		rows := strings.Repeat(`{"table":"nothing","row":{}}`+"\n", 1000)
		refused(e.do("POST", root+"restores/b/rows", strings.NewReader(rows), "Content-Type", "application/json"))
		refused(e.do("POST", root+"restores", strings.NewReader(`{"backup":"b","x":[`+strings.Repeat("{},", 1000)+`{}]}`), "Content-Type", "application/json"))
		refused(e.do("PUT", root+"restores/b/contents/"+strings.Repeat("a", 64), strings.NewReader("x")))
		letGo()
		resp, body := e.do("POST", root+"restores/b/rows", strings.NewReader(rows), "Content-Type", "application/json")
		Expect(resp.StatusCode).To(Equal(http.StatusUnprocessableEntity), body)
		resp, _ = e.do("GET", root+"backups", nil)
		Expect(resp.StatusCode).To(Equal(http.StatusOK))
		Eventually(budget.Used).Should(BeZero())
	})

	It("ends a stream that finds none, which goes on where it ended", func(ctx SpecContext) {
		_, err := st.Inject(ctx, message("hello"))
		Expect(err).NotTo(HaveOccurred())
		letGo := hold(64 << 10)
		_, body := e.do("GET", at("t", "/events?follow=false"), nil)
		Expect(body).To(And(ContainSubstring("stream.closed"), ContainSubstring(`"reason":"NoMemory"`), ContainSubstring("connect again to continue")))
		letGo()
		_, body = e.do("GET", at("t", "/events?follow=false"), nil)
		Expect(body).To(And(ContainSubstring("hello"), ContainSubstring("EndOfLog")))
	})

	It("ends a watch that finds none", func(ctx SpecContext) {
		_, err := st.Inject(ctx, message(strings.Repeat("x", 100<<10)))
		Expect(err).NotTo(HaveOccurred())
		letGo := hold(64 << 10)
		_, body := e.do("GET", at("t", "/observe?follow=false"), nil)
		Expect(body).To(And(ContainSubstring("stream.closed"), ContainSubstring(`"reason":"NoMemory"`), ContainSubstring("connect again for the present value")))
		letGo()
		_, body = e.do("GET", at("t", "/observe?follow=false"), nil)
		Expect(body).To(ContainSubstring("xxxx"))
	})

	It("is not taken from other namespaces", func() {
		defer hold(0)()
		other := budget.Open("calm")
		defer other.Close()
		Expect(other.TryDraw(8 << 20)).To(Succeed())
	})

	It("holds the events of large messages in small batches", func(ctx SpecContext) {
		for range 12 {
			_, err := st.Inject(ctx, message(strings.Repeat("x", 700<<10)))
			Expect(err).NotTo(HaveOccurred())
		}
		most := int64(0)
		ctx2, stop := context.WithCancel(ctx)
		defer stop()
		req, err := http.NewRequestWithContext(ctx2, "GET", e.base+at("t", "/events?follow=false"), nil)
		Expect(err).NotTo(HaveOccurred())
		req.Header.Set("Authorization", "Bearer alice")
		resp, err := e.http.Do(req)
		Expect(err).NotTo(HaveOccurred())
		defer resp.Body.Close()
		var read int64
		for {
			n, err := io.CopyN(io.Discard, resp.Body, 64<<10)
			read += n
			most = max(most, budget.Used())
			if errors.Is(err, io.EOF) {
				break
			}
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(read).To(BeNumerically(">", 12*700<<10))
		Expect(most).To(And(BeNumerically(">", 1<<20), BeNumerically("<", 24<<20)))
	})
})

func message(text string) thread.NewMessage {
	return thread.NewMessage{Role: store.RoleUser, Content: &text}
}
