package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

// pieces gives the pieces of answers under way that the log has, in order, and how often they were taken back.
func pieces(ctx context.Context, w *enginetest.World, id string) (texts []string, resets int) {
	GinkgoHelper()
	events, err := w.Store.Events(ctx, id, 0, 0)
	Expect(err).NotTo(HaveOccurred())
	created := map[string]bool{}
	for _, e := range events {
		switch e.Type {
		case store.EventMessageCreated:
			created[e.MessageID] = true
		case store.EventDelta:
			Expect(created).NotTo(HaveKey(e.MessageID), "pieces come before their message")
			var d struct {
				Text  string `json:"text"`
				Reset bool   `json:"reset"`
			}
			Expect(json.Unmarshal(e.Data, &d)).To(Succeed())
			if d.Reset {
				resets++
			}
			texts = append(texts, d.Text)
		}
	}
	return texts, resets
}

var _ = Describe("An answer under way", Label("EVT-03"), func() {
	var w *enginetest.World
	BeforeEach(func() { w = newWorld() })

	// still stops the clock by which pieces are written: what is written then has another reason.
	still := func(o *engine.Options) { o.Clock = clocktesting.NewFakeClock(time.Now()) }

	It("is in the log in batches, at most one for each 50 ms", func(ctx SpecContext) {
		var id string
		m := &talking{enough: func(ctx context.Context) bool {
			got, _ := pieces(ctx, w, id)
			return len(got) >= 2
		}}
		w.Models = m
		w.Definitions.Put("a")
		id = makeThread(ctx, w, "a")
		start(w)
		begin := time.Now()
		send(ctx, w, id, "go")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		took := time.Since(begin)
		got, _ := pieces(ctx, w, id)
		Expect(len(got)).To(And(BeNumerically(">=", 2), BeNumerically("<=", int(took/(50*time.Millisecond))+1)))
		Expect(m.said).To(HavePrefix(strings.Join(got, "")))
	})

	It("that is done at once leaves no pieces", func(ctx SpecContext) {
		w.Definitions.Put("a", enginetest.Script(enginetest.Say(strings.Repeat("quick ", 100))))
		start(w, still)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		got, _ := pieces(ctx, w, id)
		Expect(got).To(BeEmpty())
	})

	It("is written at once when much has come", func(ctx SpecContext) {
		w.Models = model4k{}
		w.Definitions.Put("a")
		start(w, still)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		got, _ := pieces(ctx, w, id)
		Expect(got).To(HaveExactElements(HaveLen(4<<10), HaveLen(5<<10)))
	})

	It("is taken back when the call is made anew", func(ctx SpecContext) {
		w.Models = restarting{}
		w.Definitions.Put("a")
		start(w, still)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		rest(ctx, w, id)
		got, resets := pieces(ctx, w, id)
		Expect(resets).To(Equal(1))
		Expect(got).To(HaveLen(2))
		Expect(told(ctx, w, id)).To(Equal([]string{"user: go", "assistant: right"}))
	})
})

var _ = Describe("Idle threads", func() {
	It("cost no goroutines", func(ctx SpecContext) {
		w := newWorld()
		w.Definitions.Put("echo", enginetest.Script(enginetest.Say("x")))
		start(w)
		id := makeThread(ctx, w, "echo")
		send(ctx, w, id, "warm up")
		rest(ctx, w, id)
		before := runtime.NumGoroutine() // some may still be on their way out: there are no more of others than these
		ids := make([]string, 300)
		for i := range ids {
			ids[i] = makeThread(ctx, w, "echo")
			send(ctx, w, ids[i], fmt.Sprint(i))
		}
		for _, id := range ids {
			rest(ctx, w, id)
		}
		Eventually(runtime.NumGoroutine).Should(BeNumerically("<", before+len(ids)/3), "far from one each")
	})
})

// talking says a word every 10 ms until it was enough.
type talking struct {
	enough func(context.Context) bool
	said   string
}

func (m *talking) Client(model.Config) (model.Client, error) { return m, nil }

func (m *talking) Stream(ctx context.Context, _ model.Request, emit func(model.Delta)) (*model.Response, error) {
	for ctx.Err() == nil && !m.enough(ctx) {
		m.said += "word "
		emit(model.Delta{Text: "word "})
		pause(ctx, 10*time.Millisecond)
	}
	return &model.Response{Content: m.said}, context.Cause(ctx)
}

// model4k sends 4 KiB in small pieces, then 5 KiB at once.
type model4k struct{}

func (model4k) Client(model.Config) (model.Client, error) { return model4k{}, nil }

func (model4k) Stream(_ context.Context, _ model.Request, emit func(model.Delta)) (*model.Response, error) {
	for range 4 {
		emit(model.Delta{Text: strings.Repeat("x", 1<<10)})
	}
	emit(model.Delta{Text: strings.Repeat("y", 5<<10)})
	return &model.Response{Content: "all"}, nil
}

// restarting sends enough to be written, takes it back and answers otherwise.
type restarting struct{}

func (restarting) Client(model.Config) (model.Client, error) { return restarting{}, nil }

func (restarting) Stream(_ context.Context, _ model.Request, emit func(model.Delta)) (*model.Response, error) {
	emit(model.Delta{Text: strings.Repeat("wrong", 1<<10)})
	emit(model.Delta{Reset: true})
	emit(model.Delta{Text: strings.Repeat("right", 1<<10)})
	return &model.Response{Content: "right"}, nil
}
