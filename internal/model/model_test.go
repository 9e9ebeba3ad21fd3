package model_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/model"
)

func TestModel(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Models")
}

// failing fails a number of times, each time after a piece of its answer, and then answers.
type failing struct {
	failures int
	err      *model.Error
	calls    int
}

func (f *failing) Stream(_ context.Context, _ model.Request, emit func(model.Delta)) (*model.Response, error) {
	f.calls++
	emit(model.Delta{Text: fmt.Sprint("try ", f.calls)})
	if f.calls <= f.failures {
		return nil, f.err
	}
	return &model.Response{Content: "done"}, nil
}

var _ = Describe("Retries", Label("AGT-06"), func() {
	passing := &model.Error{Kind: model.KindStatus, Status: 503, Message: "busy", Passing: true}
	var clk *clocktesting.FakeClock
	BeforeEach(func() { clk = clocktesting.NewFakeClock(time.Now()) })

	// play calls a model, steps the clock whenever the model waits, and returns the time waited.
	play := func(ctx context.Context, f *failing, retries int) (waited time.Duration, deltas []model.Delta, err error) {
		begin := clk.Now()
		finished := make(chan error, 1)
		go func() {
			_, err := model.WithRetries(f, retries, clk).Stream(ctx, model.Request{}, func(d model.Delta) { deltas = append(deltas, d) })
			finished <- err
		}()
		for {
			select {
			case err := <-finished:
				return clk.Since(begin), deltas, err
			case <-time.After(time.Millisecond):
				if clk.HasWaiters() {
					clk.Step(50 * time.Millisecond)
				}
			}
		}
	}

	It("come with growing pauses, and reset the pieces of a failed attempt", func() {
		waited, deltas, err := play(context.Background(), &failing{failures: 2, err: passing}, 2)
		Expect(err).NotTo(HaveOccurred())
		Expect(deltas).To(Equal([]model.Delta{{Text: "try 1"}, {Reset: true}, {Text: "try 2"}, {Reset: true}, {Text: "try 3"}}))
		Expect(waited).To(BeNumerically("~", 1400*time.Millisecond, 300*time.Millisecond)) // 0.5 s and 1 s, less at most a fifth
	})

	It("end after the allowed number, with the last failure", func() {
		f := &failing{failures: 9, err: passing}
		_, _, err := play(context.Background(), f, 3)
		Expect(err).To(MatchError(passing))
		Expect(f.calls).To(Equal(4))
	})

	It("are not made for permanent failures", func() {
		final := &model.Error{Kind: model.KindBadAnswer, Message: "nonsense"}
		f := &failing{failures: 1, err: final}
		_, _, err := play(context.Background(), f, 3)
		Expect(err).To(MatchError(final))
		Expect(f.calls).To(Equal(1))
	})

	It("stop with the context, and return its cause", func() {
		cause := errors.New("stopped")
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(cause)
		_, _, err := play(ctx, &failing{failures: 1, err: passing}, 3)
		Expect(err).To(MatchError(cause))
	})
})

var _ = Describe("Redaction", func() {
	It("finds a key in every encoding that a server may send back", func() {
		const key = `sk-"1+2/3`
		r := model.NewRedactor(key)
		for _, spelling := range []string{key, `sk-\"1+2/3`, url.QueryEscape(key), url.PathEscape(key), base64.StdEncoding.EncodeToString([]byte(key))} {
			Expect(r.Redact("a " + spelling + " b")).To(Equal("a [redacted] b"))
		}
	})
	It("leaves text alone when there is no key", func() {
		Expect(model.NewRedactor("", "ab").Redact("abc")).To(Equal("abc"))
	})
})
