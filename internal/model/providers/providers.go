// Package providers creates the client that a Model's spec asks for.
package providers

import (
	"net/http"
	"slices"
	"strings"
	"sync"

	"k8s.io/utils/clock"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/providers/anthropic"
	"github.com/skein-dev/skein/internal/model/providers/openai"
	"github.com/skein-dev/skein/internal/model/providers/scripted"
	"github.com/skein-dev/skein/internal/model/window"
	"github.com/skein-dev/skein/internal/ownclock"
)

// registered has the constructor of each provider. A test in hack/doctest compares it with the enum of the API and with the docs.
var registered = map[skeinv1.ModelProvider]func(model.Config, clock.Clock) (model.Client, error){
	skeinv1.ProviderOpenAI:    func(c model.Config, _ clock.Clock) (model.Client, error) { return asClient(openai.New(c)) },
	skeinv1.ProviderAnthropic: func(c model.Config, _ clock.Clock) (model.Client, error) { return asClient(anthropic.New(c)) },
	skeinv1.ProviderScripted:  func(c model.Config, clk clock.Clock) (model.Client, error) { return asClient(scripted.New(c, clk)) },
}

// asClient returns the result of a constructor as an interface, which is nil after an error.
func asClient[C model.Client](c C, err error) (model.Client, error) {
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Names returns the names of the providers, sorted.
func Names() []string {
	names := make([]string, 0, len(registered))
	for name := range registered {
		names = append(names, string(name))
	}
	slices.Sort(names)
	return names
}

// maxCached limits the number of cached clients, because Models come and go.
const maxCached = 4096

// Factory creates and caches clients. It is safe for concurrent use; mu guards clients.
type Factory struct {
	clock clock.Clock
	limit Limiter // nil without limits
	// network returns what makes the requests of a namespace's models. nil: they reach every address.
	network func(namespace string) http.RoundTripper

	mu      sync.Mutex
	clients map[key]entry
}

type key struct{ namespace, name string }

type entry struct {
	version string
	client  model.Client
}

// NewFactory returns a factory whose clients use the given clock; the real clock when nil.
func NewFactory(clk clock.Clock) *Factory {
	if clk == nil {
		clk = ownclock.Clock{}
	}
	return &Factory{clock: clk, clients: map[key]entry{}}
}

// Limiter applies a Model's limits to its calls.
type Limiter interface {
	// Wrap returns a client whose calls wait for their turn. Without limits it returns the client unchanged.
	Wrap(c model.Client, namespace, name string, limits *skeinv1.ModelLimits) model.Client
}

// WithLimits applies the limits of Models to their calls. Call it before the first client is created. Without it there
// are no limits.
func (f *Factory) WithLimits(l Limiter) *Factory {
	f.limit = l
	return f
}

// Through has the requests of a namespace's models made by what network returns for it. Call it before the first client is
// created.
func (f *Factory) Through(network func(namespace string) http.RoundTripper) *Factory {
	f.network = network
	return f
}

// Client implements model.Factory.
func (f *Factory) Client(c model.Config) (model.Client, error) {
	k := key{c.Namespace, c.Name}
	f.mu.Lock()
	defer f.mu.Unlock()
	if e, ok := f.clients[k]; ok && c.Version != "" && e.version == c.Version {
		return e.client, nil
	}
	client, err := f.make(c)
	if err != nil {
		return nil, err
	}
	if len(f.clients) >= maxCached {
		clear(f.clients)
	}
	f.clients[k] = entry{version: c.Version, client: client}
	return client, nil
}

// make returns the client of a Model with its fallbacks.
func (f *Factory) make(c model.Config) (model.Client, error) {
	client, err := f.one(c)
	if err != nil {
		return nil, err
	}
	others := make([]model.Named, 0, len(c.Fallbacks))
	for _, o := range c.Fallbacks {
		other, err := f.one(o)
		if err != nil {
			return nil, err
		}
		others = append(others, model.Named{Name: o.Name, Client: other})
	}
	return model.WithFallbacks(model.Named{Name: c.Name, Client: client}, others...), nil
}

// one returns the client of a single Model. It adapts requests to what that model can do and read, whether the model is
// the first one or a fallback. Each attempt of a call counts separately against the limits.
func (f *Factory) one(c model.Config) (model.Client, error) {
	client, err := f.bare(c)
	if err != nil {
		return nil, err
	}
	if _, err := model.Price(c.Spec.Pricing, model.Usage{}); err != nil {
		return nil, model.Errorf(model.KindConfig, "model %s: %v", c.Name, err)
	}
	retries := model.DefaultRetries
	if c.Spec.MaxRetries != nil {
		retries = int(*c.Spec.MaxRetries)
	}
	if f.limit != nil {
		client = f.limit.Wrap(client, c.Namespace, c.Name, c.Spec.Limits)
	}
	client = model.WithRestarts(model.WithRetries(client, retries, f.clock))
	return &observed{client: model.Fitted(window.Within(model.WithoutTools(client, c.Spec), c.Name, c.Spec), c.Name, c.Spec), model: c, clock: f.clock}, nil
}

// bare returns the provider's own client, which does not retry.
func (f *Factory) bare(c model.Config) (model.Client, error) {
	if f.network != nil {
		c.Transport = f.network(c.Namespace)
	}
	create, ok := registered[c.Spec.Provider]
	if !ok {
		return nil, model.Errorf(model.KindConfig, "model %s: spec.provider is %q: use one of %s", c.Name, c.Spec.Provider, strings.Join(Names(), ", "))
	}
	return create(c, f.clock)
}
