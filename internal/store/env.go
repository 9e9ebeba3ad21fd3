package store

import "context"

// EnvType says whether the value of a variable may be shown (ENV-02).
type EnvType string

// The types of variables.
const (
	EnvText   EnvType = "text"
	EnvSecret EnvType = "secret"
)

// EnvOrigin says where a thread's variable comes from.
type EnvOrigin string

// The origins of a thread's variables.
const (
	EnvSet       EnvOrigin = "set"       // by setEnv
	EnvSpec      EnvOrigin = "spec"      // from spec.env of its object
	EnvInherited EnvOrigin = "inherited" // from an ancestor
)

// EnvVar is a variable of a thread. Its value is sealed, so the store never sees the plain text (ENV-05).
type EnvVar struct {
	Name  string
	Type  EnvType
	Value []byte // sealed
	// KeyID identifies the key that seals the value.
	KeyID  uint32
	Origin EnvOrigin
	// Entry identifies the entry of the object's spec, and Version the state of what that entry refers to. Both are
	// those applied last. A call of setEnv keeps Entry, so that the same entry does not overwrite the new value.
	Entry, Version string
	UpdatedAt      int64
}

// SealedEnv is a variable as key rotation reads it.
type SealedEnv struct {
	ThreadID string
	RootID   string
	Name     string
	Value    []byte
	KeyID    uint32
}

// ResealedEnv is a value sealed under a new key. It replaces the stored value only while that equals Old.
type ResealedEnv struct {
	ThreadID string
	Name     string
	Old, New []byte
	KeyID    uint32
}

// EnvStore is the part of a Store that keeps variables of threads (the ENV rows).
type EnvStore interface {
	// Env lists the variables of a thread by name. It returns ErrNotFound when the thread does not exist.
	Env(ctx context.Context, threadID string) ([]EnvVar, error)
	// EnvKeys counts the variables of all threads by the key under which they are sealed.
	EnvKeys(ctx context.Context) (map[uint32]int64, error)
	// EnvNotUnder lists variables that are sealed under a key other than keyID. The order is internal. The list
	// continues after the variable after, which an earlier call returned, and starts at the first when after is nil.
	EnvNotUnder(ctx context.Context, keyID uint32, after *SealedEnv, limit int) ([]SealedEnv, error)
	// ResealEnv replaces values in one transaction. Values that have changed since they were read stay as they are.
	ResealEnv(ctx context.Context, values []ResealedEnv) error
	// EnvWaiting lists the threads whose run waits for variables, by id, starting after the id after. An empty
	// namespace selects all namespaces.
	EnvWaiting(ctx context.Context, namespace, after string, limit int) ([]string, error)
}

// SetEnv sets variables of the thread and of its active descendants. A descendant whose agent graph scopes the name is
// left out, and so are the descendants below it (ENV-04). A variable without a type keeps its type; a new one becomes
// secret (ENV-02). Runs that wait for variables are woken to check again (ENV-06).
type SetEnv struct{ Vars []EnvVar }

// UnsetEnv removes variables of the thread, and from its active descendants those that they inherited under the same
// names.
type UnsetEnv struct {
	Names   []string
	Removed int // filled in: how many variables the thread itself had
}

// ScopeEnv replaces the names that the thread does not inherit, and removes inherited variables of names that are new.
type ScopeEnv struct{ Names []string }

func (*SetEnv) op()   {}
func (*UnsetEnv) op() {}
func (*ScopeEnv) op() {}
