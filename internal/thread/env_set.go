package thread

import (
	"context"
	"errors"
	"regexp"
	"slices"

	"github.com/skein-dev/skein/internal/store"
)

// Limits of variables.
const (
	// MaxEnvValueBytes is the largest size of one value.
	MaxEnvValueBytes = 32 << 10
	// MaxEnvVars is the largest number of variables that one thread may have of its own.
	MaxEnvVars = 500
	// EnvPending is not allowed as a name: the runtime API serves the pending request at that path.
	EnvPending = "pending"

	maxEnvName = 128
)

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// CheckEnvName refuses invalid names of variables.
func CheckEnvName(name string) error {
	switch {
	case len(name) > maxEnvName || !envName.MatchString(name):
		return invalid("name", "give a name of at most %d letters, digits and '_' that does not begin with a digit", maxEnvName)
	case name == EnvPending:
		return invalid("name", "a variable cannot have the name %q: choose another", EnvPending)
	}
	return nil
}

// SetEnv sets a variable of the thread and of its active descendants (ENV-04). Without a type the variable keeps its
// type; a new one is secret (ENV-02).
func (st *State) SetEnv(ctx context.Context, name, value string, kind store.EnvType) error {
	if err := CheckEnvName(name); err != nil {
		return err
	}
	switch kind {
	case "", store.EnvText, store.EnvSecret:
	default:
		return invalid("type", `give "text" or "secret", or leave it out, not %q`, kind)
	}
	if err := checkEnvValue(value); err != nil {
		return err
	}
	t, err := st.Info(ctx)
	if err != nil {
		return err
	}
	own, err := st.svc.store.Env(ctx, st.id)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(own, func(v store.EnvVar) bool { return v.Name == name })
	if i < 0 && len(own) >= MaxEnvVars {
		return invalid("name", "the thread has %d variables, which is the limit: remove one", MaxEnvVars)
	}
	if kind == store.EnvSecret || (kind == "" && (i < 0 || own[i].Type == store.EnvSecret)) {
		st.svc.registerEnv(t.Namespace, &EnvValue{Name: name, Value: value, Type: store.EnvSecret})
	}
	v, err := st.svc.sealEnv(t.EnvTree(), name, value)
	if err != nil {
		return err
	}
	v.Type = kind
	return st.Apply(ctx, &store.SetEnv{Vars: []store.EnvVar{*v}})
}

func (s *Service) sealEnv(root, name, value string) (*store.EnvVar, error) {
	if s.env.Cipher == nil {
		return nil, errors.New("environment variables of threads are not configured")
	}
	sealed, keyID, err := s.env.Cipher.Seal(root, name, []byte(value))
	if err != nil {
		return nil, err
	}
	return &store.EnvVar{Name: name, Value: sealed, KeyID: keyID}, nil
}

func checkEnvValue(value string) error {
	if len(value) > MaxEnvValueBytes {
		return invalid("value", "it has %d bytes, more than the limit of %d: keep large data in a file", len(value), MaxEnvValueBytes)
	}
	return checkText("value", value)
}

// UnsetEnv removes a variable of the thread and what its descendants inherited of it. It reports whether the thread had
// it.
func (st *State) UnsetEnv(ctx context.Context, name string) (bool, error) {
	if err := CheckEnvName(name); err != nil {
		return false, err
	}
	op := &store.UnsetEnv{Names: []string{name}}
	err := st.Apply(ctx, op)
	return op.Removed > 0, err
}
