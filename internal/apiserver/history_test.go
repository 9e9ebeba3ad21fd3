package apiserver

import (
	"context"
	"fmt"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// reads is a store that counts what a list of threads may read of it, and what it must not.
type reads struct {
	store.Store
	lists, relationships, contents atomic.Int64
}

func (r *reads) Threads(ctx context.Context, q store.ThreadQuery) ([]store.Thread, bool, error) {
	r.lists.Add(1)
	return r.Store.Threads(ctx, q)
}

func (r *reads) ParentRelationships(ctx context.Context, ids []string) (map[string][]store.Relationship, error) {
	r.relationships.Add(1)
	return r.Store.ParentRelationships(ctx, ids)
}

func (r *reads) Thread(ctx context.Context, id string) (*store.Thread, error) {
	r.contents.Add(1)
	return r.Store.Thread(ctx, id)
}

func (r *reads) Messages(ctx context.Context, id string, q store.MessageQuery) (*store.MessagePage, error) {
	r.contents.Add(1)
	return r.Store.Messages(ctx, id, q)
}

func (r *reads) Message(ctx context.Context, id, message string) (*store.Message, error) {
	r.contents.Add(1)
	return r.Store.Message(ctx, id, message)
}

func (r *reads) RunMessages(ctx context.Context, id, run string) ([]store.Message, error) {
	r.contents.Add(1)
	return r.Store.RunMessages(ctx, id, run)
}

func (r *reads) FileUsage(ctx context.Context, id string) (*store.FileUsage, error) {
	r.contents.Add(1)
	return r.Store.FileUsage(ctx, id)
}

var _ = Describe("The history", Label("THR-15"), func() {
	It("is read by two queries, however many threads and messages it is about, and reads no message", func(ctx SpecContext) {
		r := &reads{}
		e := newEnv(func(o *Options) {
			r.Store = o.Threads.Store()
			o.Threads = thread.NewService(thread.Options{Store: r})
		})
		for i := range 40 {
			st, _ := e.thread(fmt.Sprint("t-", i))
			for n := range 10 {
				text := fmt.Sprint("message ", n)
				Expect(st.Apply(ctx, &store.AppendMessage{Message: &store.Message{ID: text, Role: store.RoleUser, Content: &text, CreatedAt: 1}})).To(Succeed())
			}
		}
		for _, limit := range []int{1, 10, 40} {
			r.lists.Store(0)
			r.relationships.Store(0)
			r.contents.Store(0)
			list, err := e.client().History(ctx, "ns", runtimeclient.HistoryOptions{Limit: limit})
			Expect(err).NotTo(HaveOccurred())
			Expect(list.Items).To(And(HaveLen(limit), HaveEach(HaveField("SummaryStats.MessageCount", int64(10)))))
			Expect([]int64{r.lists.Load(), r.relationships.Load(), r.contents.Load()}).To(Equal([]int64{1, 1, 0}), "lists, relationships, contents of threads for %d", limit)
		}
	})

	It("takes one beginning of a page, and none that is of another list", func(ctx SpecContext) {
		e := newEnv()
		for i := range 3 {
			e.thread(fmt.Sprint("t-", i))
		}
		first, err := e.client().History(ctx, "ns", runtimeclient.HistoryOptions{Limit: 1})
		Expect(err).NotTo(HaveOccurred())
		_, err = e.client().History(ctx, "ns", runtimeclient.HistoryOptions{Continue: first.Continue})
		Expect(err).NotTo(HaveOccurred())
		resp, body := e.do("GET", "/apis/runtime.skein.dev/v1alpha1/namespaces/ns/history?offset=1&continue="+first.Continue, nil)
		Expect(resp.StatusCode).To(Equal(422), body)
		Expect(body).To(ContainSubstring("offset: continue says where the page begins"))
		_, err = e.client().History(ctx, "ns", runtimeclient.HistoryOptions{Continue: "1.delivery-1"})
		Expect(err).To(MatchError(ContainSubstring("is not the value of metadata.continue in the previous page")))
	})
})
