package thread

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skein-dev/skein/internal/envkeys"
	"github.com/skein-dev/skein/internal/store"
)

// ErrEnvUnknown means that no source has a variable (ENV-01).
var ErrEnvUnknown = errors.New("there is no such variable")

// EnvUnreadableError means that a variable of a thread cannot be decrypted, usually because its key is gone.
type EnvUnreadableError struct {
	Name  string
	cause error
}

// Error implements error.
func (e *EnvUnreadableError) Error() string {
	return fmt.Sprintf("the variable %s cannot be read: %v", e.Name, e.cause)
}

// Unwrap returns the cause.
func (e *EnvUnreadableError) Unwrap() error { return e.cause }

// EnvSource is where the value of a variable comes from. The constants below are in the order of lookup (ENV-01).
type EnvSource string

// The sources.
const (
	EnvFromThread   EnvSource = "thread"
	EnvFromUser     EnvSource = "user"
	EnvFromInstance EnvSource = "instance"
	EnvFromAgent    EnvSource = "agent"
	EnvFromPrompt   EnvSource = "prompt"
)

// EnvValue is a variable with its plain value.
type EnvValue struct {
	Name   string
	Value  string
	Type   store.EnvType
	Source EnvSource
	// Side is the side of the agent whose prompt has the variable, "a" or "b"; "" when it applies to both.
	Side string
	// Called is the prompt that has the variable, when it applies only while that prompt is called as a tool; ""
	// otherwise.
	Called string
	// Origin and UpdatedAt are set for a thread's own variables.
	Origin    store.EnvOrigin
	UpdatedAt int64
}

// EnvDeclaration is what a thread's agent declares about a variable that it uses.
type EnvDeclaration struct {
	Name     string
	Type     store.EnvType
	Required bool // the thread does not run without it (ENV-06)
	Scoped   bool // it is not inherited from the parent (ENV-04)
	// Description is for the person who sets the value.
	Description string
}

// EnvLayers holds the variables below a thread's own.
type EnvLayers struct {
	// Values holds those of the user, the instance, the agent and the prompt, in this order. The first of a name
	// applies.
	Values []EnvValue
	// Declared holds the declarations of the agent and the prompt, by name.
	Declared []EnvDeclaration
	// Dual reports whether the agent has two sides.
	Dual bool
}

// EnvLayerer returns the layers of a thread.
type EnvLayerer interface {
	Layers(ctx context.Context, t *store.Thread) (*EnvLayers, error)
}

// EnvCipher seals values; see package envkeys.
type EnvCipher interface {
	// Has reports whether values that are sealed under a key can be opened.
	Has(keyID uint32) bool
	Primary() (uint32, error)
	Seal(root, name string, value []byte) (sealed []byte, keyID uint32, err error)
	Open(root, name string, sealed []byte) ([]byte, error)
	Reseal(sealed []byte) (out []byte, keyID uint32, err error)
}

// EnvSecrets registers every secret value that is used, so that it can be redacted.
type EnvSecrets interface {
	Register(namespace, name, value string)
}

// EnvOptions are the dependencies of variables. Each may be nil.
type EnvOptions struct {
	Cipher EnvCipher
	// Refresh reloads the cipher's keys: a value may be sealed under a key that another replica already has and this
	// one does not.
	Refresh func(ctx context.Context)
	Layers  EnvLayerer
	Secrets EnvSecrets
}

// ServeEnv sets the dependencies of variables. Call it before the service is used.
func (s *Service) ServeEnv(o EnvOptions) { s.env = o }

// EnvReader says who reads the variables of a thread. The zero value is side a.
type EnvReader struct {
	// Side is the side of the agent, "a" or "b".
	Side string
	// Called lists the prompts being called as tools, each by the one before it. The last one reads.
	Called []string
}

// rank returns the rank of a value for the reader: among those of prompts the highest one applies. counts is false for
// a value that the reader does not see.
func (r EnvReader) rank(v *EnvValue) (rank int, counts bool) {
	if v.Called != "" {
		i := slices.Index(r.Called, v.Called)
		return i + 1, i >= 0
	}
	return 0, v.Side == "" || v.Side == cmp.Or(r.Side, "a")
}

// environment holds all resolved variables of a thread.
type environment struct {
	values   map[string]EnvValue
	declared []EnvDeclaration
	dual     bool            // the agent has two sides
	others   map[string]bool // names that only prompts not in use have
}

// environment resolves all variables of a thread and registers the secret ones. So every secret that code, a tool or an
// answer can contain is known to redaction. Of prompt variables, it resolves those that the reader uses.
func (s *Service) environment(ctx context.Context, t *store.Thread, reader EnvReader) (*environment, error) {
	e := &environment{values: map[string]EnvValue{}, others: map[string]bool{}}
	if s.env.Layers != nil {
		layers, err := s.env.Layers.Layers(ctx, t)
		if err != nil {
			return nil, err
		}
		e.declared, e.dual = layers.Declared, layers.Dual
		ranks := map[string]int{}
		for _, v := range layers.Values {
			old, before := e.values[v.Name]
			switch rank, counts := reader.rank(&v); {
			case !counts:
				e.others[v.Name] = true
			case !before, old.Source == EnvFromPrompt && rank > ranks[v.Name]:
				e.values[v.Name], ranks[v.Name] = v, rank
			}
			s.registerEnv(t.Namespace, &v) // also one that another value hides
		}
	}
	own, err := s.store.Env(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	for i := range own {
		v, err := s.openEnv(ctx, t, &own[i])
		if err != nil {
			return nil, err
		}
		s.registerEnv(t.Namespace, v)
		e.values[v.Name] = *v
	}
	return e, nil
}

func (s *Service) openEnv(ctx context.Context, t *store.Thread, v *store.EnvVar) (*EnvValue, error) {
	if s.env.Cipher == nil {
		return nil, errors.New("environment variables of threads are not configured")
	}
	value, err := s.env.Cipher.Open(t.EnvTree(), v.Name, v.Value)
	var unknown *envkeys.UnknownKeyError
	if errors.As(err, &unknown) && s.env.Refresh != nil {
		s.env.Refresh(ctx)
		value, err = s.env.Cipher.Open(t.EnvTree(), v.Name, v.Value)
	}
	if err != nil {
		return nil, &EnvUnreadableError{Name: v.Name, cause: err}
	}
	return &EnvValue{Name: v.Name, Value: string(value), Type: v.Type, Source: EnvFromThread, Origin: v.Origin, UpdatedAt: v.UpdatedAt}, nil
}

func (s *Service) registerEnv(namespace string, v *EnvValue) {
	if s.env.Secrets != nil && v.Type == store.EnvSecret {
		s.env.Secrets.Register(namespace, v.Name, v.Value)
	}
}

// LoadEnv resolves and registers all variables of a thread, before any of its code runs, and returns the names of
// required ones that have no value (ENV-06).
func (s *Service) LoadEnv(ctx context.Context, t *store.Thread) (missing []string, err error) {
	e, err := s.environment(ctx, t, EnvReader{})
	if err != nil {
		return nil, err
	}
	for _, d := range e.missingVariables() {
		missing = append(missing, d.Name)
	}
	return missing, nil
}

// EnvLookup resolves and registers all variables of a thread, and returns a function that looks one up as a reader sees
// it.
func (s *Service) EnvLookup(ctx context.Context, t *store.Thread, reader EnvReader) (func(name string) (string, bool), error) {
	e, err := s.environment(ctx, t, reader)
	if err != nil {
		return nil, err
	}
	return func(name string) (string, bool) {
		v, ok := e.values[name]
		return v.Value, ok
	}, nil
}

// missingVariables returns the required variables that have no value, by name.
func (e *environment) missingVariables() (missing []EnvDeclaration) {
	for _, d := range e.declared {
		if _, ok := e.values[d.Name]; d.Required && !ok && !e.others[d.Name] {
			missing = append(missing, d)
		}
	}
	return missing
}

// resolve returns all variables of this thread.
func (st *State) resolve(ctx context.Context) (*environment, error) {
	t, err := st.Info(ctx)
	if err != nil {
		return nil, err
	}
	var reader EnvReader
	if st.reader != nil {
		reader = st.reader(ctx)
	}
	return st.svc.environment(ctx, t, reader)
}

// EnvValue returns a variable from the first source that has it (ENV-01), or ErrEnvUnknown when none has.
func (st *State) EnvValue(ctx context.Context, name string) (*EnvValue, error) {
	if err := CheckEnvName(name); err != nil {
		return nil, err
	}
	e, err := st.resolve(ctx)
	if err != nil {
		return nil, err
	}
	v, ok := e.values[name]
	if !ok {
		return nil, fmt.Errorf("%w: %s: set it with setEnv, in spec.env of the Thread, the Agent or the Prompt, or in a Secret of the user or the instance", ErrEnvUnknown, name)
	}
	return &v, nil
}

// EnvType returns whether a variable may be shown (ENV-02). It is secret unless declared otherwise, also when the
// variable is unknown.
func (st *State) EnvType(ctx context.Context, name string) (store.EnvType, error) {
	v, err := st.EnvValue(ctx, name)
	switch {
	case errors.Is(err, ErrEnvUnknown):
		return store.EnvSecret, nil
	case err != nil:
		return "", err
	}
	return v.Type, nil
}

// ErrOneSide means that side b was asked for and the thread's agent has none.
var ErrOneSide = errors.New("the thread's agent has no side b: only those of the type dual_ai have two")

// ListEnv returns all variables of this thread by name, as a side of its agent sees them, "a" or "b". With "" it
// returns those of both sides: variables that the sides see differently appear once for each, with Side set; the others
// appear once, without it. For an agent with one side, "" is that side, and "b" fails with ErrOneSide.
func (st *State) ListEnv(ctx context.Context, side string) ([]EnvValue, error) {
	t, err := st.Info(ctx)
	if err != nil {
		return nil, err
	}
	e, err := st.svc.environment(ctx, t, EnvReader{Side: side})
	if err != nil {
		return nil, err
	}
	switch {
	case !e.dual && side == "b":
		return nil, ErrOneSide
	case e.dual && side == "":
		other, err := st.svc.environment(ctx, t, EnvReader{Side: "b"})
		if err != nil {
			return nil, err
		}
		return bothSides(e.values, other.values), nil
	}
	return byName(slices.Collect(maps.Values(e.values)), func(v *EnvValue) { v.Side = "" }), nil
}

// bothSides merges what side a and side b see.
func bothSides(a, b map[string]EnvValue) []EnvValue {
	var list []EnvValue
	for name, v := range a {
		if _, also := b[name]; v.Side != "" || also && b[name].Side != "" {
			v.Side = "a"
		}
		list = append(list, v)
	}
	for name, v := range b {
		if _, also := a[name]; v.Side != "" || also && a[name].Side != "" {
			v.Side = "b"
			list = append(list, v)
		}
	}
	return byName(list, func(*EnvValue) {})
}

func byName(list []EnvValue, each func(*EnvValue)) []EnvValue {
	for i := range list {
		each(&list[i])
	}
	slices.SortFunc(list, func(a, b EnvValue) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Side, b.Side))
	})
	return list
}

// PendingEnv returns the variables that the thread waits for, by name (ENV-06).
func (st *State) PendingEnv(ctx context.Context) ([]EnvDeclaration, error) {
	e, err := st.resolve(ctx)
	if err != nil {
		return nil, err
	}
	return e.missingVariables(), nil
}
