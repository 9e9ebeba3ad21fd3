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

// ErrEnvUnknown says that no source has a variable (ENV-01).
var ErrEnvUnknown = errors.New("there is no such variable")

// EnvUnreadableError says that a variable of a thread cannot be opened, and why, as a rule because its key is
// gone.
type EnvUnreadableError struct {
	Name  string
	cause error
}

// Error implements error.
func (e *EnvUnreadableError) Error() string {
	return fmt.Sprintf("the variable %s cannot be read: %v", e.Name, e.cause)
}

// Unwrap gives the cause.
func (e *EnvUnreadableError) Unwrap() error { return e.cause }

// EnvSource is where the value of a variable comes from, in the order in which they are asked (ENV-01).
type EnvSource string

// The sources.
const (
	EnvFromThread   EnvSource = "thread"
	EnvFromUser     EnvSource = "user"
	EnvFromInstance EnvSource = "instance"
	EnvFromAgent    EnvSource = "agent"
	EnvFromPrompt   EnvSource = "prompt"
)

// EnvValue is a variable with its value in clear.
type EnvValue struct {
	Name   string
	Value  string
	Type   store.EnvType
	Source EnvSource
	// Side of the agent whose prompt it is of, "a" or "b"; "" where it counts for both.
	Side string
	// Called is the prompt that has it, where it counts only while that is called as a tool; "" otherwise.
	Called string
	// Origin and UpdatedAt are those of a thread's own variables.
	Origin    store.EnvOrigin
	UpdatedAt int64
}

// EnvDeclaration is what a thread's agent says of a variable that it uses.
type EnvDeclaration struct {
	Name     string
	Type     store.EnvType
	Required bool // the thread does not run without it (ENV-06)
	Scoped   bool // it is not inherited from the parent (ENV-04)
	// Description for whoever gives it a value.
	Description string
}

// EnvLayers is what lies below a thread's own variables.
type EnvLayers struct {
	// Values of the user, the instance, the agent and the prompt, in this order: the first of a name counts.
	Values []EnvValue
	// Declared by the agent and the prompt, by name.
	Declared []EnvDeclaration
	// Dual: the agent has two sides.
	Dual bool
}

// EnvLayerer finds the layers of a thread.
type EnvLayerer interface {
	Layers(ctx context.Context, t *store.Thread) (*EnvLayers, error)
}

// EnvCipher seals values; see the package envkeys.
type EnvCipher interface {
	Primary() (uint32, error)
	Seal(root, name string, value []byte) (sealed []byte, keyID uint32, err error)
	Open(root, name string, sealed []byte) ([]byte, error)
	Reseal(sealed []byte) (out []byte, keyID uint32, err error)
}

// EnvSecrets is told of every secret value that comes into use, so that it is kept out of what is shown.
type EnvSecrets interface {
	Register(namespace, name, value string)
}

// EnvOptions are what variables need; each may be nil.
type EnvOptions struct {
	Cipher EnvCipher
	// Refresh gives the cipher the keys of now: a value may be sealed under one that another replica has and this one not yet.
	Refresh func(ctx context.Context)
	Layers  EnvLayerer
	Secrets EnvSecrets
}

// ServeEnv gives the service what variables need. Call it before the service is used.
func (s *Service) ServeEnv(o EnvOptions) { s.env = o }

// EnvReader is who reads the variables of a thread. The zero value is side a.
type EnvReader struct {
	// Side of the agent, "a" or "b".
	Side string
	// Called are the prompts that it is calling as tools, one by the other: the last one reads.
	Called []string
}

// rank of a value for the reader: among those of prompts the higher one counts. Counts is false for what it does not see.
func (r EnvReader) rank(v *EnvValue) (rank int, counts bool) {
	if v.Called != "" {
		i := slices.Index(r.Called, v.Called)
		return i + 1, i >= 0
	}
	return 0, v.Side == "" || v.Side == cmp.Or(r.Side, "a")
}

// environment is all variables of a thread, resolved.
type environment struct {
	values   map[string]EnvValue
	declared []EnvDeclaration
	dual     bool            // the agent has two sides
	others   map[string]bool // what prompts have that are not in use
}

// environment resolves all variables of a thread, and registers the secret ones. So no code, no tool and no
// answer can come by a secret that is not looked for in what they write.
// Of prompts it is those which count that the reader uses.
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
			s.registerEnv(t.Namespace, &v) // one that another hides as well
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
		return nil, errors.New("variables of threads are not set up")
	}
	value, err := s.env.Cipher.Open(t.RootID, v.Name, v.Value)
	var unknown *envkeys.UnknownKeyError
	if errors.As(err, &unknown) && s.env.Refresh != nil {
		s.env.Refresh(ctx)
		value, err = s.env.Cipher.Open(t.RootID, v.Name, v.Value)
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

// LoadEnv resolves and registers all variables of a thread, before any code of it runs, and lists the names of
// required ones that have no value (ENV-06).
func (s *Service) LoadEnv(ctx context.Context, t *store.Thread) (missing []string, err error) {
	e, err := s.environment(ctx, t, EnvReader{})
	if err != nil {
		return nil, err
	}
	for _, d := range e.missing() {
		missing = append(missing, d.Name)
	}
	return missing, nil
}

// EnvLookup resolves and registers all variables of a thread, and gives what tells the value of one as a reader sees it.
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

// missing lists what is required and has no value, by name.
func (e *environment) missing() (missing []EnvDeclaration) {
	for _, d := range e.declared {
		if _, ok := e.values[d.Name]; d.Required && !ok && !e.others[d.Name] {
			missing = append(missing, d)
		}
	}
	return missing
}

// resolve gives all variables of this thread.
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

// EnvValue gives a variable from the first source that has it (ENV-01). ErrEnvUnknown when none has.
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

// EnvType tells whether a variable may be shown (ENV-02): secret when nobody says otherwise, also of one
// that is not known.
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

// ErrOneSide says that what was asked for is of side b, and the thread's agent has none.
var ErrOneSide = errors.New("the thread's agent has no side b: only those of the type dual_ai have two")

// ListEnv gives all variables of this thread by name, as a side of its agent sees them, "a" or "b". With "" it is both: what the
// two see otherwise is there once for each, with its Side, and what they see alike without. Where the agent has one side
// that is all, and "b" is ErrOneSide.
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

// bothSides puts together what side a and side b see.
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

// PendingEnv lists the variables that the thread waits for, by name (ENV-06).
func (st *State) PendingEnv(ctx context.Context) ([]EnvDeclaration, error) {
	e, err := st.resolve(ctx)
	if err != nil {
		return nil, err
	}
	return e.missing(), nil
}
