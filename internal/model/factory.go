package model

import (
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// Config is a Model with all that it refers to, resolved.
type Config struct {
	Namespace string
	Name      string
	Spec      skeinv1.ModelSpec
	Steps     []skeinv1.ScriptStep // of a scripted model
	APIKey    string               // a secret: it goes to the provider and nowhere else
	// Fallbacks are asked in this order when the Model fails; theirs count for nothing.
	Fallbacks []Config
	// Version changes whenever anything above does: clients are cached by it.
	Version string
}

// Factory gives the client of a Model.
type Factory interface {
	// Client gives the same client for the same version. An error is an *Error of KindConfig.
	Client(c Config) (Client, error)
}
