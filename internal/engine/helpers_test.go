package engine_test

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/model"
)

const hour = time.Hour

func ms(n int) *metav1.Duration {
	return &metav1.Duration{Duration: time.Duration(n) * time.Millisecond}
}

// repeater is a model that gives every call the same id, twice in one answer, and then answers.
type repeater struct{}

func (repeater) Client(model.Config) (model.Client, error) { return repeater{}, nil }

func (repeater) Stream(_ context.Context, req model.Request, _ func(model.Delta)) (*model.Response, error) {
	if last := req.Messages[len(req.Messages)-1]; last.Role == model.RoleTool && len(req.Messages) > 5 {
		return &model.Response{Content: "done"}, nil
	}
	call := model.ToolCall{ID: "same", Name: "get_value", Arguments: `{"key":"k"}`}
	return &model.Response{ToolCalls: []model.ToolCall{call, call}}, nil
}

// spy notes which tools each model is offered.
type spy struct {
	factory model.Factory

	mu      sync.Mutex
	offered map[string][][]string // by model, one entry a call
}

func (s *spy) Client(c model.Config) (model.Client, error) {
	client, err := s.factory.Client(c)
	return &spyClient{spy: s, name: c.Name, client: client}, err
}

func (s *spy) tools(name string, call int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offered[name][call]
}

type spyClient struct {
	spy    *spy
	name   string
	client model.Client
}

func (c *spyClient) Stream(ctx context.Context, req model.Request, emit func(model.Delta)) (*model.Response, error) {
	names := []string{}
	for _, t := range req.Tools {
		names = append(names, t.Name)
	}
	c.spy.mu.Lock()
	if c.spy.offered == nil {
		c.spy.offered = map[string][][]string{}
	}
	c.spy.offered[c.name] = append(c.spy.offered[c.name], names)
	c.spy.mu.Unlock()
	return c.client.Stream(ctx, req, emit)
}

// patient has one model, by its name, wait before each answer until something is so. No latency is long enough on a
// machine that is busy with other things.
type patient struct {
	model.Factory
	name  string
	until func(context.Context) bool
}

func (p patient) Client(c model.Config) (model.Client, error) {
	client, err := p.Factory.Client(c)
	if c.Name == p.name && err == nil {
		client = patientClient{client, p.until}
	}
	return client, err
}

type patientClient struct {
	model.Client
	until func(context.Context) bool
}

func (c patientClient) Stream(ctx context.Context, req model.Request, emit func(model.Delta)) (*model.Response, error) {
	for !c.until(ctx) {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		pause(ctx, 2*time.Millisecond)
	}
	return c.Client.Stream(ctx, req, emit)
}

// shifted is the real clock, set forward.
type shifted struct {
	clock.RealClock
	by atomic.Int64
}

func (s *shifted) Now() time.Time { return s.RealClock.Now().Add(time.Duration(s.by.Load())) }
