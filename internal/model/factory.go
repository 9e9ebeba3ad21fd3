package model

import (
	"net/http"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// Config is a Model with everything that it refers to.
type Config struct {
	Namespace string
	Name      string
	Spec      skeinv1.ModelSpec
	Steps     []skeinv1.ScriptStep // of a scripted model
	APIKey    string               // secret: it is sent only to the provider
	// Fallbacks are called in this order when the Model fails. Their own fallbacks are ignored.
	Fallbacks []Config
	// Transport makes the requests to the endpoint; the factory sets it. nil stands for one that reaches every address.
	Transport http.RoundTripper
	// Version changes whenever a field above changes. Clients are cached by it.
	Version string
}

// Factory returns the clients of Models.
type Factory interface {
	// Client returns the same client for the same version. Its error is an *Error of KindConfig.
	Client(c Config) (Client, error)
}
