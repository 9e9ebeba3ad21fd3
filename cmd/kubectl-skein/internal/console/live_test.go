package console_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coder/websocket"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/cmd/kubectl-skein/internal/console"
)

// liveMessage is a message of a live list.
type liveMessage struct {
	Kind    string              `json:"kind"`
	Reset   bool                `json:"reset"`
	Items   []console.ThreadRow `json:"items"`
	Deleted []string            `json:"deleted"`
	Synced  bool                `json:"synced"`
	Error   *struct{ Reason, Message string }
}

// tab is a page that keeps lists as their messages say.
type tab struct {
	conn   *websocket.Conn
	rows   map[string]map[string]console.ThreadRow // by kind and name
	synced map[string]int                          // how often a list was complete
	resets map[string]int
	errors map[string]string
	pieces map[string]int // messages with rows
	most   int            // rows in a message
	gone   []string
}

// look opens a live list.
func (b *browser) look(ctx context.Context, namespace string) *tab {
	GinkgoHelper()
	conn, _, err := b.socket(ctx, "/api/live?namespace="+namespace, websocket.DialOptions{}) //nolint:bodyclose // Dial needs none
	Expect(err).NotTo(HaveOccurred())
	conn.SetReadLimit(64 << 20)
	DeferCleanup(func() { _ = conn.CloseNow() })
	return &tab{
		conn: conn, rows: map[string]map[string]console.ThreadRow{"threads": {}, "effects": {}}, synced: map[string]int{}, resets: map[string]int{}, errors: map[string]string{}, pieces: map[string]int{},
	}
}

// until reads messages until the lists are as they should be.
func (t *tab) until(ctx context.Context, done func() bool) {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for !done() {
		_, body, err := t.conn.Read(ctx)
		Expect(err).NotTo(HaveOccurred(), "%+v", t)
		var m liveMessage
		Expect(json.Unmarshal(body, &m)).To(Succeed())
		if m.Reset {
			t.resets[m.Kind]++
			clear(t.rows[m.Kind])
		}
		for _, row := range m.Items {
			t.rows[m.Kind][row.Name] = row
		}
		for _, key := range m.Deleted {
			t.gone = append(t.gone, m.Kind+" "+key)
			delete(t.rows[m.Kind], strings.TrimPrefix(key, "demo/"))
		}
		if len(m.Items)+len(m.Deleted) > 0 {
			t.pieces[m.Kind]++
			t.most = max(t.most, len(m.Items)+len(m.Deleted))
		}
		if m.Synced {
			t.synced[m.Kind]++
			delete(t.errors, m.Kind)
		}
		if m.Error != nil {
			t.errors[m.Kind] = m.Error.Reason + ": " + m.Error.Message
		}
	}
}

func (t *tab) names(kind string) []string { return slices.Sorted(maps.Keys(t.rows[kind])) }

func (t *tab) complete() bool { return t.synced["threads"] > 0 && t.synced["effects"] > 0 }

func titled(title string) object { return object{"spec": map[string]any{"title": title}} }

func history(name, title string, v int64, archived bool) runtimev1.ThreadHistory {
	return runtimev1.ThreadHistory{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "demo"}, ThreadID: "uid-" + name, V: v, Title: &title, Archived: archived}
}

var _ = Describe("live lists", Label("CON-01"), func() {
	It("have all objects, and then what changes", func(ctx SpecContext) {
		c := startCluster()
		c.put(threadsPath, "a", titled("one"))
		c.put(threadsPath, "b", titled(""))
		c.put(effectsPath, "daily", nil)
		t := open(optionsFor(c.Server)).look(ctx, "demo")
		t.until(ctx, t.complete)
		Expect(t.names("threads")).To(Equal([]string{"a", "b"}))
		Expect(t.names("effects")).To(Equal([]string{"daily"}))
		Expect(t.rows["threads"]["a"].Title).To(Equal("one"))
		Expect(t.rows["threads"]["a"].ID).To(Equal("uid-a"))

		resets := maps.Clone(t.resets)
		c.put(threadsPath, "c", titled("three"))
		c.put(threadsPath, "a", titled("first"))
		c.remove(threadsPath, "b")
		c.remove(effectsPath, "daily")
		t.until(ctx, func() bool {
			return len(t.gone) == 2 && len(t.rows["threads"]) == 2 && t.rows["threads"]["a"].Title == "first"
		})
		Expect(t.names("threads")).To(Equal([]string{"a", "c"}))
		Expect(t.gone).To(ConsistOf("threads demo/b", "effects demo/daily"))
		Expect(t.resets).To(Equal(resets))
	})

	It("tell of an object that is deleted between the list and the watch", func(ctx SpecContext) {
		c := startCluster()
		c.put(threadsPath, "a", nil)
		c.put(threadsPath, "b", nil)
		c.listed = func(path string) {
			if path == threadsPath {
				c.listed = nil
				c.remove(threadsPath, "b")
			}
		}
		t := open(optionsFor(c.Server)).look(ctx, "demo")
		t.until(ctx, func() bool { return t.complete() && len(t.rows["threads"]) == 1 })
		Expect(t.names("threads")).To(Equal([]string{"a"}))
	})

	It("begin anew when a watch has expired", func(ctx SpecContext) {
		c := startCluster()
		c.put(threadsPath, "a", nil)
		c.put(threadsPath, "b", nil)
		t := open(optionsFor(c.Server)).look(ctx, "demo")
		t.until(ctx, t.complete)
		Eventually(ctx, c.watching).Should(Equal(2))
		resets, synced := t.resets["threads"], t.synced["threads"]
		c.mu.Lock()
		delete(c.objects[threadsPath], "b") // a deletion without an event
		c.mu.Unlock()
		c.expire()
		t.until(ctx, func() bool { return t.resets["threads"] > resets && t.synced["threads"] > synced })
		Expect(t.names("threads")).To(Equal([]string{"a"}))
		Expect(t.errors).To(BeEmpty())
		c.put(threadsPath, "c", nil)
		t.until(ctx, func() bool { return len(t.rows["threads"]) == 2 })
	})

	It("say that one kind cannot be listed, and go on with the other", func(ctx SpecContext) {
		c := startCluster()
		c.put(threadsPath, "a", nil)
		c.put(effectsPath, "daily", nil)
		c.refuse(func(r *http.Request) *metav1.Status {
			if r.URL.Path != effectsPath {
				return nil
			}
			return &metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "no effects for you"}
		})
		o := optionsFor(c.Server)
		o.Advice = func(s metav1.Status) string { return "ask for a role (" + string(s.Reason) + ")" }
		t := open(o).look(ctx, "demo")
		t.until(ctx, func() bool { return t.errors["effects"] != "" && t.synced["threads"] > 0 })
		Expect(t.errors).To(Equal(map[string]string{"effects": "Forbidden: no effects for you\nask for a role (Forbidden)"}))
		Expect(t.synced["effects"]).To(BeZero())
		c.put(threadsPath, "b", nil)
		t.until(ctx, func() bool { return len(t.rows["threads"]) == 2 })

		c.refuse(nil)
		t.until(ctx, t.complete)
		Expect(t.names("effects")).To(Equal([]string{"daily"}))
		Expect(t.errors).To(BeEmpty())
	})

	It("say that the API server is away, and go on by themselves when it is back", func(ctx SpecContext) {
		c := startCluster()
		c.put(threadsPath, "a", nil)
		t := open(optionsFor(c.Server)).look(ctx, "demo")
		t.until(ctx, t.complete)
		c.refuse(func(*http.Request) *metav1.Status {
			return &metav1.Status{Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable, Message: "starting"}
		})
		c.breakWatches()
		t.until(ctx, func() bool { return t.errors["threads"] != "" && t.errors["effects"] != "" })
		Expect(t.errors["threads"]).To(HavePrefix("ServiceUnavailable: starting"))
		Expect(t.names("threads")).To(Equal([]string{"a"}), "rows stay as they were")
		late := open(optionsFor(c.Server)).look(ctx, "demo")
		late.until(ctx, func() bool { return late.errors["threads"] != "" })

		c.put(threadsPath, "b", nil)
		c.refuse(nil)
		t.until(ctx, func() bool { return len(t.errors) == 0 && len(t.rows["threads"]) == 2 })
		late.until(ctx, func() bool { return len(late.errors) == 0 && len(late.rows["threads"]) == 2 })
	})

	It("come in pieces", Label("CON-04"), func(ctx SpecContext) {
		c := startCluster()
		const many = 10_000
		for i := range many {
			c.put(threadsPath, fmt.Sprintf("t-%05d", i), nil)
		}
		t := open(optionsFor(c.Server)).look(ctx, "demo")
		t.until(ctx, t.complete)
		Expect(t.rows["threads"]).To(HaveLen(many))
		Expect(t.most).To(Equal(1000))
		Expect(t.pieces["threads"]).To(Equal(many / 1000))
	}, SpecTimeout(2*patience))

	It("are read once for all pages of a namespace, until the last one is closed", func(ctx SpecContext) {
		c := startCluster()
		c.put(threadsPath, "a", nil)
		b := open(optionsFor(c.Server))
		var tabs []*tab
		for range 20 {
			t := b.look(ctx, "demo")
			t.until(ctx, t.complete)
			Expect(t.names("threads")).To(Equal([]string{"a"}))
			tabs = append(tabs, t)
		}
		Expect(c.listings()).To(Equal(2))
		Eventually(ctx, c.watching).Should(Equal(2))
		c.put(threadsPath, "b", nil)
		for _, t := range tabs {
			t.until(ctx, func() bool { return len(t.rows["threads"]) == 2 })
		}
		for _, t := range tabs[1:] {
			Expect(t.conn.CloseNow()).To(Succeed())
		}
		c.put(threadsPath, "c", nil)
		tabs[0].until(ctx, func() bool { return len(tabs[0].rows["threads"]) == 3 })
		Expect(tabs[0].conn.CloseNow()).To(Succeed())
		Eventually(ctx, c.watching).Should(BeZero())
	})

	It("drop a page that does not read", func(ctx SpecContext) {
		c := startCluster()
		for i := range 2000 { // more than the buffers of a connection hold
			c.put(threadsPath, fmt.Sprintf("t-%04d", i), titled(strings.Repeat("long ", 5000)))
		}
		o := optionsFor(c.Server)
		o.WriteTimeout = 100 * time.Millisecond
		t := open(o).look(ctx, "demo")
		Eventually(ctx, c.watched).Should(Equal(2))
		Eventually(ctx, c.watching).Should(BeZero(), "the lists end with the only page")
		Eventually(ctx, func(ctx context.Context) error { // what is in the buffers, and then the end
			_, _, err := t.conn.Read(ctx)
			return err
		}).Should(HaveOccurred())
	}, SpecTimeout(2*patience))

	It("have the titles and the archived marks of the runtime API, where the viewer may read them", func(ctx SpecContext) {
		c := startCluster()
		c.put(threadsPath, "a", titled("own"))
		c.put(threadsPath, "b", nil)
		c.put(threadsPath, "c", nil)
		c.history = []runtimev1.ThreadHistory{history("a", "generated", 1, false), history("b", "generated", 5, true)}
		c.refuse(func(r *http.Request) *metav1.Status {
			if r.URL.Path != historyPath {
				return nil
			}
			return &metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "not the history"}
		})
		b := open(optionsFor(c.Server))
		t := b.look(ctx, "demo")
		t.until(ctx, t.complete)
		Expect(t.errors).To(BeEmpty())
		Expect(t.rows["threads"]).To(HaveEach(HaveField("Archived", false)))
		Expect(t.conn.CloseNow()).To(Succeed())
		Eventually(ctx, c.watching).Should(BeZero())

		c.refuse(nil)
		t = b.look(ctx, "demo")
		t.until(ctx, func() bool { return t.complete() && t.rows["threads"]["b"].Title != "" })
		Expect(t.rows["threads"]["a"].Title).To(Equal("own"))
		Expect(t.rows["threads"]["b"]).To(And(HaveField("Title", "generated"), HaveField("Archived", true)))
		c.told <- history("b", "older", 4, false)
		c.told <- history("c", "third", 1, false)
		t.until(ctx, func() bool { return t.rows["threads"]["c"].Title == "third" })
		Expect(t.rows["threads"]["b"].Title).To(Equal("generated"))
		c.told <- history("b", "newer", 6, false)
		t.until(ctx, func() bool { return t.rows["threads"]["b"].Title == "newer" })
		Expect(t.rows["threads"]["b"].Archived).To(BeFalse())
	})

	It("are those of one namespace, or of all", func(ctx SpecContext) {
		c := startCluster()
		c.put(threadsPath, "a", nil)
		c.put("/apis/skein.dev/v1alpha1/threads", "everywhere", nil)
		b := open(optionsFor(c.Server))
		one, all := b.look(ctx, "demo"), b.look(ctx, "")
		one.until(ctx, one.complete)
		all.until(ctx, all.complete)
		Expect(one.names("threads")).To(Equal([]string{"a"}))
		Expect(all.names("threads")).To(Equal([]string{"everywhere"}))
	})
})
