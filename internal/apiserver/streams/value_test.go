package streams

import (
	"context"
	"strings"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/scratch"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/sqlitetest"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/thread/observe"
)

// weighingStore remembers how large the largest page of messages was.
type weighingStore struct {
	store.Store
	most int64
}

// Messages implements store.Store.
func (w *weighingStore) Messages(ctx context.Context, threadID string, q store.MessageQuery) (*store.MessagePage, error) {
	page, err := w.Store.Messages(ctx, threadID, q)
	if err == nil {
		w.most = max(w.most, page.Bytes())
	}
	return page, err
}

var _ = Describe("the observed messages", Label("EVT-02", "K8S-12"), func() {
	It("are read in bounded memory, however large they are", func(ctx SpecContext) {
		db, err := sqlitetest.Open(ctx, sqlstore.SQLiteOptions{Dir: scratch.Folder(GinkgoT())})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(db.Close)
		weighed := &weighingStore{Store: db}
		threads := thread.NewService(thread.Options{Store: db})
		t, _, err := threads.Create(ctx, thread.NewThread{Thread: store.Thread{ID: uuid.NewString(), Namespace: "ns", Name: "hello", Agent: "helper"}})
		Expect(err).NotTo(HaveOccurred())
		st, err := threads.Open(ctx, t.ID)
		Expect(err).NotTo(HaveOccurred())
		r := &valueReader{store: weighed}
		parts := []string{runtimev1.ObserveMessages}
		var before *observe.Value
		for n := range 8 { // twice as much as a value may have
			text := strings.Repeat("x", 512<<10)
			m, err := st.Inject(ctx, thread.NewMessage{Role: store.RoleUser, Content: &text})
			Expect(err).NotTo(HaveOccurred())
			now, err := r.read(ctx, t.ID, parts, before)
			Expect(err).NotTo(HaveOccurred())
			shown := now.Parts[runtimev1.ObserveMessages].Items
			Expect(shown[len(shown)-1].ID).To(Equal(m.ID))
			if n == 3 {
				Expect(len(shown)).To(BeNumerically("<=", 3), "four of them have more than two mebibytes as JSON")
			}
			before = now
		}
		Expect(weighed.most).To(BeNumerically("<=", mostMessageBytes+mostMessageBytes/10))
	}, SpecTimeout(patience))
})
