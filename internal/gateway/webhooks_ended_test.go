package gateway

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/lookup"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/sqlitetest"
	"github.com/skein-dev/skein/internal/thread"
)

// storing creates the Threads of deliveries, and stores them as the controller does.
type storing struct {
	making
	client client.Client
}

func (r storing) CreateReceivedThread(ctx context.Context, to *definitions.Receiver, delivery string) (string, error) {
	name, err := r.Threads.CreateReceivedThread(ctx, to, delivery)
	if err != nil {
		return "", err
	}
	return name, r.keep(ctx, name)
}

// keep stores the thread of an object.
func (r storing) keep(ctx context.Context, name string) error {
	var t skeinv1.Thread
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: "ns", Name: name}, &t); err != nil {
		return err
	}
	_, _, err := r.store.CreateThread(ctx, store.Thread{ID: t.ThreadID(), Namespace: "ns", Name: name, Agent: "agent"})
	return err
}

var _ = Describe("A delivery to a thread that takes no more", Label("EVT-05", "THR-05"), func() {
	const key = "a key of 32 bytes, or about that"
	var (
		c  client.Client
		st store.Store
		s  *Server
		on storing
	)
	BeforeEach(func(ctx SpecContext) {
		c = objectsOf(interceptor.Funcs{})
		db, err := sqlitetest.Open(ctx, sqlstore.SQLiteOptions{Dir: GinkgoT().TempDir()})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(db.Close)
		st = db
		s, on = serverOf(nil), storing{making{kube.NewThreads(c, c), st}, c}
		s.opts.Threads, s.opts.Engine, s.opts.Received = thread.NewService(thread.Options{Store: st}), silent{store: st, queued: func(context.Context, string) {}}, on
		s.finder = &lookup.Finder{Reader: c, Threads: s.opts.Threads, SetupWait: time.Millisecond}
		receiver := definitions.Receiver{Namespace: "ns", UID: "u", Form: skeinv1.WebhookGitHub, Keys: [][]byte{[]byte(key)}, MaxBytes: 1000, PerMinute: 100}
		each, one := receiver, receiver
		each.Name, each.Agent = "each", "agent"
		one.Name, one.Thread = "one", "orders"
		s.opts.Receivers = receivers{"each": &each, "one": &one}
		Expect(c.Create(ctx, &skeinv1.Thread{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "orders"}})).To(Succeed())
		Expect(on.keep(ctx, "orders")).To(Succeed())
	})
	// post sends a delivery, and returns the status of the answer and the message that it names.
	post := func(receiver, delivery string) (int, string) {
		GinkgoHelper()
		const body = `{"ref": "main"}`
		mac := hmac.New(sha256.New, []byte(key))
		mac.Write([]byte(body))
		r := httptest.NewRequest(http.MethodPost, "/ns/"+receiver+"/v1/webhook", strings.NewReader(body))
		r.Header.Set("X-GitHub-Delivery", delivery)
		r.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
		got := ask(s, from("192.0.2.1:1", r))
		var taken received
		if got.StatusCode == http.StatusAccepted {
			Expect(json.NewDecoder(got.Body).Decode(&taken)).To(Succeed())
		}
		return got.StatusCode, taken.MessageID
	}
	// threadOf returns the Thread that a receiver sends deliveries to, once it has taken one.
	threadOf := func(ctx context.Context, receiver string) *skeinv1.Thread {
		GinkgoHelper()
		var list skeinv1.ThreadList
		Expect(c.List(ctx, &list)).To(Succeed())
		for i := range list.Items {
			if made := list.Items[i].Labels[skeinv1.LabelReceiver] != ""; made == (receiver == "each") {
				return &list.Items[i]
			}
		}
		Fail("there is no Thread")
		return nil
	}
	terminate := func(ctx context.Context, t *skeinv1.Thread) {
		GinkgoHelper()
		Expect(st.Apply(ctx, t.ThreadID(), nil, &store.Terminate{Reason: skeinv1.ReasonTerminatedByRequest})).To(Succeed())
	}

	DescribeTable("is answered as the first time when it is a repeat", func(ctx SpecContext, receiver string) {
		code, message := post(receiver, "d1")
		Expect(code).To(Equal(http.StatusAccepted))
		terminate(ctx, threadOf(ctx, receiver))
		again, same := post(receiver, "d1")
		Expect(again).To(Equal(http.StatusAccepted))
		Expect(same).To(Equal(message))
	},
		Entry("of a delivery with a Thread of its own", "each"),
		Entry("of a delivery to the thread of threadRef", "one"),
	)

	It("is refused for good only where threadRef names the thread", func(ctx SpecContext) {
		terminate(ctx, threadOf(ctx, "one"))
		code, _ := post("one", "d1")
		Expect(code).To(Equal(http.StatusGone))

		_, err := on.CreateReceivedThread(ctx, s.opts.Receivers.(receivers)["each"], "d1") // of a delivery whose message was not stored
		Expect(err).NotTo(HaveOccurred())
		terminate(ctx, threadOf(ctx, "each"))
		code, _ = post("each", "d1")
		Expect(code).To(Equal(http.StatusServiceUnavailable))
	})

	DescribeTable("is asked for again while the Thread is being deleted", func(ctx SpecContext, receiver string, deletes func(ctx context.Context, t *skeinv1.Thread)) {
		if receiver == "each" {
			_, err := on.CreateReceivedThread(ctx, s.opts.Receivers.(receivers)["each"], "d1")
			Expect(err).NotTo(HaveOccurred())
		}
		t := threadOf(ctx, receiver)
		deletes(ctx, t)
		code, _ := post(receiver, "d1")
		Expect(code).To(Equal(http.StatusServiceUnavailable))
		Expect(st.Inbox(ctx, t.ThreadID())).To(BeEmpty(), "what it took would be removed with it")
	},
		Entry("of a delivery with a Thread of its own", "each", func(ctx context.Context, t *skeinv1.Thread) { deleteObject(ctx, c, t) }),
		Entry("of threadRef", "one", func(ctx context.Context, t *skeinv1.Thread) { deleteObject(ctx, c, t) }),
		Entry("of threadRef, as the store knows already", "one", func(ctx context.Context, t *skeinv1.Thread) {
			Expect(st.MarkDeleted(ctx, string(t.UID), t.ThreadID())).To(Succeed())
		}),
	)
})

// deleteObject begins the deletion of an object, which a finalizer holds up.
func deleteObject(ctx context.Context, c client.Client, t *skeinv1.Thread) {
	GinkgoHelper()
	t.Finalizers = []string{"skein.dev/test"}
	Expect(c.Update(ctx, t)).To(Succeed())
	Expect(c.Delete(ctx, t)).To(Succeed())
}
