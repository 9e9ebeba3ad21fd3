package conformance

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// gate is a model that answers when a spec opens it: what is to happen while a model is being asked needs no latency, of
// which none is long enough on every machine.
type gate struct {
	*harness.ChatServer
	asked atomic.Int64 // how many requests have come

	mu     sync.Mutex
	opened chan struct{}
}

// newGate makes a gate. Say and CallTool of the harness write answers; last is the newest message, role and content.
func newGate(answer func(w http.ResponseWriter, req harness.ChatRequest, last string)) *gate {
	g := &gate{opened: make(chan struct{})}
	g.ChatServer = harness.NewChatServer(func(w http.ResponseWriter, r *http.Request, req harness.ChatRequest) {
		g.mu.Lock()
		opened := g.opened
		g.mu.Unlock()
		g.asked.Add(1)
		select {
		case <-r.Context().Done():
		case <-opened:
			m := req.Messages[len(req.Messages)-1]
			answer(w, req, m.Role+" "+m.ToolCallID+strings.Trim(string(m.Content), `"`))
		}
	})
	DeferCleanup(func() {
		g.CloseClientConnections()
		g.Close()
	})
	return g
}

// open lets all answers through until shut is called.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.opened)
}

// shut holds what is asked from now on.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.opened = make(chan struct{})
	g.asked.Store(0)
}

// model of the gate.
func (g *gate) model(ns, name string) *skeinv1.Model {
	m := harness.OpenAI(ns, name, g.URL+"/v1", "")
	m.Spec.Timeout = &metav1.Duration{Duration: 5 * time.Minute}
	return m
}
