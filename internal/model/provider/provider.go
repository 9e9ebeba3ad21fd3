// Package provider makes the client that a Model's spec asks for.
package provider

import (
	"sync"

	"k8s.io/utils/clock"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/anthropic"
	"github.com/skein-dev/skein/internal/model/openai"
	"github.com/skein-dev/skein/internal/model/scripted"
)

// maxCached bounds the clients that are kept, against Models that come and go.
const maxCached = 4096

// Factory makes and keeps clients. It is safe for concurrent use.
type Factory struct {
	clock clock.Clock

	mu      sync.Mutex
	clients map[key]entry
}

type key struct{ namespace, name string }

type entry struct {
	version string
	client  model.Client
}

// NewFactory makes a factory whose clients wait by the given clock; the real one when nil.
func NewFactory(clk clock.Clock) *Factory {
	if clk == nil {
		clk = clock.RealClock{}
	}
	return &Factory{clock: clk, clients: map[key]entry{}}
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

func (f *Factory) make(c model.Config) (model.Client, error) {
	retries := model.DefaultRetries
	if c.Spec.MaxRetries != nil {
		retries = int(*c.Spec.MaxRetries)
	}
	switch c.Spec.Provider {
	case skeinv1.ProviderOpenAI:
		client, err := openai.New(c)
		if err != nil {
			return nil, err
		}
		return model.WithRetries(client, retries, f.clock), nil
	case skeinv1.ProviderAnthropic:
		client, err := anthropic.New(c)
		if err != nil {
			return nil, err
		}
		return model.WithRetries(client, retries, f.clock), nil
	case skeinv1.ProviderScripted:
		client, err := scripted.New(c, f.clock)
		if err != nil {
			return nil, err
		}
		return client, nil
	}
	return nil, model.Errorf(model.KindConfig, "model %s: spec.provider is %q: use openai, anthropic or scripted", c.Name, c.Spec.Provider)
}
