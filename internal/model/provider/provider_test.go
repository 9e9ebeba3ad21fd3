package provider_test

import (
	"errors"
	"testing"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/provider"
)

func scripted(version string) model.Config {
	return model.Config{Namespace: "a", Name: "m", Version: version, Spec: skeinv1.ModelSpec{Provider: skeinv1.ProviderScripted}, Steps: []skeinv1.ScriptStep{{Content: "x"}}}
}

func TestClientsAreKeptByVersion(t *testing.T) {
	f := provider.NewFactory(nil)
	get := func(c model.Config) model.Client {
		t.Helper()
		client, err := f.Client(c)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	one := get(scripted("1"))
	if get(scripted("1")) != one {
		t.Error("the same version must give the same client")
	}
	if get(scripted("2")) == one {
		t.Error("another version must give another client")
	}
	other := scripted("2")
	other.Namespace = "b"
	if get(other) == get(scripted("2")) {
		t.Error("Models of two namespaces must not share a client")
	}
}

func TestUnusableModelsAreRefused(t *testing.T) {
	f := provider.NewFactory(nil)
	bad := scripted("1")
	bad.Spec.Provider = "telepathy"
	noSteps := scripted("1")
	noSteps.Steps = nil
	for _, c := range []model.Config{bad, noSteps, {Name: "m", Spec: skeinv1.ModelSpec{Provider: skeinv1.ProviderOpenAI}}} {
		client, err := f.Client(c)
		var e *model.Error
		if !errors.As(err, &e) || e.Kind != model.KindConfig || client != nil {
			t.Errorf("%s: got %v, %v", c.Spec.Provider, client, err)
		}
	}
}
