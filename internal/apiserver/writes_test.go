package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// failingAnswers is a store that fails between a write and storing its answer.
type failingAnswers struct {
	store.Store
	dead bool
}

func (f *failingAnswers) Apply(ctx context.Context, id string, fence *store.Fence, ops ...store.Op) error {
	if len(ops) == 0 {
		return f.Store.Apply(ctx, id, fence)
	}
	if once, ok := ops[0].(*store.Once); ok && f.dead && strings.HasPrefix(once.Key, "answer:") {
		return store.ErrUnavailable
	}
	return f.Store.Apply(ctx, id, fence, ops...)
}

var _ = Describe("writes under an idempotency key", Label("MSG-10"), func() {
	const key = runtimev1.HeaderIdempotencyKey
	type request struct{ method, path, body string }
	writes := map[string]request{
		"inject":    {"POST", "/messages", `{"content":"hi"}`},
		"queue":     {"POST", "/queue", `{"content":"hi"}`},
		"file":      {"PUT", "/files/a/b.txt", "some bytes"},
		"value":     {"PUT", "/kv/k", `{"a":1}`},
		"effect":    {"POST", "/effects", `{"name":"x"}`},
		"stop":      {"POST", "/stop", ``},
		"lease":     {"POST", "/lease", `{"ttlSeconds":5}`},
		"terminate": {"POST", "/terminate", `{}`},
	}
	version := func(e *testEnv, st *thread.State) int64 {
		GinkgoHelper()
		t, err := st.Info(context.Background())
		Expect(err).NotTo(HaveOccurred())
		return t.Version
	}

	It("happen once, and give the first answer again", func() {
		for name, w := range writes {
			e := newEnv()
			st, _ := e.thread("hello")
			first, body := e.do(w.method, at("hello", w.path), strings.NewReader(w.body), key, "k1")
			Expect(first.StatusCode).To(BeNumerically("<", 300), "%s: %s", name, body)
			Expect(first.Header.Get(runtimev1.HeaderIdempotentReplayed)).To(BeEmpty(), name)
			v := version(e, st)
			again, repeated := e.do(w.method, at("hello", w.path), strings.NewReader(w.body), key, "k1")
			Expect(repeated).To(Equal(body), name)
			Expect(again.StatusCode).To(Equal(first.StatusCode), name)
			Expect(again.Header.Get("Content-Type")).To(Equal(first.Header.Get("Content-Type")), name)
			Expect(again.Header.Get(runtimev1.HeaderIdempotentReplayed)).To(Equal("true"), name)
			Expect(version(e, st)).To(Equal(v), name)

			for _, other := range []request{{w.method, w.path, w.body + " "}, {w.method, w.path + "?v=0", w.body}} {
				s := e.status(other.method, at("hello", other.path), other.body, key, "k1")
				Expect(s.Reason).To(Equal(metav1.StatusReasonInvalid), name)
				Expect(s.Message).To(ContainSubstring("key was used for another request"), name)
			}
			Expect(version(e, st)).To(Equal(v), name)
		}
	})

	It("are not made twice when the answer could not be kept", func() {
		for name, w := range writes {
			if name == "lease" { // a repeat is a new request: the first holder is unknown
				continue
			}
			var dying *failingAnswers
			e := newEnv(func(o *Options) {
				dying = &failingAnswers{Store: o.Threads.Store(), dead: true}
				bucket, err := thread.OpenBucket(context.Background(), "file://"+GinkgoT().TempDir())
				Expect(err).NotTo(HaveOccurred())
				DeferCleanup(bucket.Close)
				o.Threads = thread.NewService(thread.Options{Store: dying, Blobs: bucket})
			})
			st, _ := e.thread("hello")
			first, body := e.do(w.method, at("hello", w.path), strings.NewReader(w.body), key, "k1")
			Expect(first.StatusCode).To(BeNumerically("<", 300), "%s: %s", name, body)
			v := version(e, st)
			dying.dead = false
			again, repeated := e.do(w.method, at("hello", w.path), strings.NewReader(w.body), key, "k1")
			Expect(again.StatusCode).To(Equal(first.StatusCode), "%s: %s", name, repeated)
			Expect(version(e, st)).To(Equal(v), name)
			if name != "file" { // its time is that of the repeat
				Expect(repeated).To(Equal(body), name)
			}
		}
	})

	It("are made by one of many that come at once", func() {
		e := newEnv()
		st, _ := e.thread("hello")
		bodies := make([]string, 12)
		var wg sync.WaitGroup
		for i := range bodies {
			wg.Go(func() {
				defer GinkgoRecover()
				resp, body := e.do("POST", at("hello", "/messages"), strings.NewReader(`{"content":"once"}`), key, "k")
				Expect(resp.StatusCode).To(Equal(http.StatusCreated))
				bodies[i] = body
			})
		}
		wg.Wait()
		Expect(bodies).To(HaveEach(Equal(bodies[0])))
		page, err := st.Messages(context.Background(), store.MessageQuery{})
		Expect(err).NotTo(HaveOccurred())
		Expect(page.Messages).To(HaveLen(1))
	})

	It("that fail may be tried again", func() {
		e := newEnv()
		e.thread("hello")
		Expect(e.status("POST", at("hello", "/messages"), `{}`, key, "k2").Code).To(BeEquivalentTo(422))
		resp, _ := e.do("POST", at("hello", "/messages"), strings.NewReader(`{"content":"now"}`), key, "k2")
		Expect(resp.StatusCode).To(Equal(http.StatusCreated))
	})

	It("have keys of their own in each thread, and reasonable ones", func() {
		e := newEnv()
		e.thread("a")
		e.thread("b")
		for _, name := range []string{"a", "b"} {
			resp, _ := e.do("POST", at(name, "/messages"), strings.NewReader(`{"content":"x"}`), key, "k")
			Expect(resp.Header.Get(runtimev1.HeaderIdempotentReplayed)).To(BeEmpty())
		}
		s := e.status("POST", at("a", "/messages"), `{"content":"x"}`, key, strings.Repeat("x", 201))
		Expect(s.Message).To(ContainSubstring("1 to 200 bytes"))
	})
})

var _ = Describe("writes that expect a version", Label("THR-11"), func() {
	It("are refused after a change that they have not seen", func() {
		e := newEnv()
		st, _ := e.thread("hello")
		resp, _ := e.do("POST", at("hello", "/messages?v=0"), strings.NewReader(`{"content":"a"}`))
		Expect(resp.StatusCode).To(Equal(http.StatusCreated))
		for _, w := range []struct{ method, path, body string }{
			{"POST", "/messages?v=0", `{"content":"b"}`}, {"POST", "/queue?v=0", `{"content":"b"}`}, {"PUT", "/files/f?v=0", "x"},
			{"PUT", "/kv/k?v=7", "1"}, {"POST", "/stop?v=0", ""}, {"POST", "/terminate?v=0", ""}, {"POST", "/effects?v=0", `{"name":"x"}`},
			{"DELETE", "/kv/k?v=0", ""},
		} {
			s := e.status(w.method, at("hello", w.path), w.body)
			Expect(s.Reason).To(Equal(metav1.StatusReasonConflict), w.path)
			Expect(s.Details.Causes).To(ConsistOf(And(HaveField("Field", "v"), HaveField("Message", "1"))), w.path)
		}
		t, err := st.Info(context.Background())
		Expect(err).NotTo(HaveOccurred())
		Expect(t).To(And(HaveField("Version", int64(1)), HaveField("TerminatedAt", BeZero())))
		Expect(e.engine.stopped).To(BeEmpty())
		for _, v := range []string{"x", "-1", "1&v=2", ""} {
			Expect(e.status("POST", at("hello", "/messages?v="+v), `{"content":"b"}`).Code).To(BeEquivalentTo(422), v)
		}
	})
})

var _ = Describe("leases", Label("THR-12"), func() {
	acquire := func(e *testEnv, body string) runtimev1.Lease {
		GinkgoHelper()
		resp, data := e.do("POST", at("hello", "/lease"), strings.NewReader(body))
		Expect(resp.StatusCode).To(Equal(http.StatusCreated), data)
		var l runtimev1.Lease
		Expect(json.Unmarshal([]byte(data), &l)).To(Succeed())
		return l
	}

	It("are held by one client, fence its writes, and end by release", func() {
		e := newEnv()
		st, _ := e.thread("hello")
		l := acquire(e, `{"ttlSeconds":600}`)
		Expect(e.status("POST", at("hello", "/lease"), ``).Reason).To(Equal(metav1.StatusReasonConflict))
		_, err := e.svc.Store().Acquire(context.Background(), st.ID(), "engine", 1)
		Expect(err).To(MatchError(store.ErrLeaseHeld), "runs are shut out")

		resp, _ := e.do("POST", at("hello", "/messages"), strings.NewReader(`{"content":"mine"}`), runtimev1.HeaderLease, l.Token)
		Expect(resp.StatusCode).To(Equal(http.StatusCreated))
		resp, _ = e.do("PUT", at("hello", "/lease"), strings.NewReader(`{"ttlSeconds":300}`), runtimev1.HeaderLease, l.Token)
		Expect(resp.StatusCode).To(Equal(http.StatusOK))
		for range 2 {
			resp, _ = e.do("DELETE", at("hello", "/lease"), nil, runtimev1.HeaderLease, l.Token)
			Expect(resp.StatusCode).To(Equal(http.StatusOK))
		}
		for _, w := range []struct{ method, path, body string }{
			{"POST", "/messages", `{"content":"late"}`}, {"PUT", "/files/f", "x"}, {"PUT", "/kv/k", "1"}, {"POST", "/terminate", ""}, {"PUT", "/lease", ""},
		} {
			s := e.status(w.method, at("hello", w.path), w.body, runtimev1.HeaderLease, l.Token)
			Expect(s.Reason).To(Equal(metav1.StatusReasonConflict), w.path)
			Expect(s.Message).To(ContainSubstring("lease"), w.path)
		}
		next := acquire(e, ``)
		Expect(next.Epoch).To(BeNumerically(">", l.Epoch))
		Expect(e.status("POST", at("hello", "/messages"), `{"content":"late"}`, runtimev1.HeaderLease, l.Token).Reason).To(Equal(metav1.StatusReasonConflict))
		t, err := st.Info(context.Background())
		Expect(err).NotTo(HaveOccurred())
		Expect(t.Messages).To(Equal(int64(1)))
	})

	It("refuse invalid terms and tokens", func() {
		e := newEnv()
		e.thread("hello")
		for _, body := range []string{`{"ttlSeconds":0}`, `{"ttlSeconds":-1}`, `{"ttlSeconds":3601}`, `{"ttlSeconds":9223372036854775807}`, `{"ttl":1}`} {
			Expect(e.status("POST", at("hello", "/lease"), body).Code).To(BeEquivalentTo(422), body)
		}
		for _, token := range []string{"x", "a.1", strings.Repeat("0", 32), strings.Repeat("z", 32) + ".1", strings.Repeat("0", 32) + ".x"} {
			Expect(e.status("POST", at("hello", "/messages"), `{"content":"x"}`, runtimev1.HeaderLease, token).Code).To(BeEquivalentTo(422), token)
		}
		forged := fmt.Sprintf("%s.%d", strings.Repeat("0", 32), 1)
		Expect(e.status("POST", at("hello", "/messages"), `{"content":"x"}`, runtimev1.HeaderLease, forged).Reason).To(Equal(metav1.StatusReasonConflict))
		Expect(e.status("DELETE", at("hello", "/lease"), ``).Message).To(ContainSubstring("token"))
	})
})
