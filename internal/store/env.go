package store

import "context"

// EnvType of a variable: whether its value may be shown (ENV-02).
type EnvType string

// The types of variables.
const (
	EnvText   EnvType = "text"
	EnvSecret EnvType = "secret"
)

// EnvOrigin tells how a thread came to a variable.
type EnvOrigin string

// The origins of a thread's variables.
const (
	EnvSet       EnvOrigin = "set"       // by setEnv
	EnvSpec      EnvOrigin = "spec"      // from spec.env of its object
	EnvInherited EnvOrigin = "inherited" // from an ancestor
)

// ReasonEnvMissing is the reason of a run that waits for variables (ENV-06); as in api/v1alpha1.
const ReasonEnvMissing = "EnvMissing"

// EnvVar is a variable of a thread. Its value is sealed: the store never sees it (ENV-05).
type EnvVar struct {
	Name  string
	Type  EnvType
	Value []byte // sealed
	// KeyID of the key under which the value is sealed.
	KeyID  uint32
	Origin EnvOrigin
	// Entry tells entries of the object's spec apart, and Version the states of what the entry refers to. They
	// are those that were applied last; a set keeps the Entry, so that the same entry does not win it back.
	Entry, Version string
	UpdatedAt      int64
}

// SealedEnv is a variable as the change of keys needs it.
type SealedEnv struct {
	ThreadID string
	RootID   string
	Name     string
	Value    []byte
	KeyID    uint32
}

// ResealedEnv is a value under another key. It takes the place of Old only.
type ResealedEnv struct {
	ThreadID string
	Name     string
	Old, New []byte
	KeyID    uint32
}

// EnvStore is the part of a Store that keeps variables of threads (SPEC ENV).
type EnvStore interface {
	// Env lists the variables of a thread by name. ErrNotFound when there is no such thread.
	Env(ctx context.Context, threadID string) ([]EnvVar, error)
	// EnvKeys counts the variables of all threads by the key under which they are sealed.
	EnvKeys(ctx context.Context) (map[uint32]int64, error)
	// EnvNotUnder lists variables that are sealed under another key, in an order of its own, after one that it
	// gave before; from the first when after is nil.
	EnvNotUnder(ctx context.Context, keyID uint32, after *SealedEnv, limit int) ([]SealedEnv, error)
	// ResealEnv puts values under another key, in one transaction. Those that have changed since stay as they are.
	ResealEnv(ctx context.Context, values []ResealedEnv) error
	// EnvWaiting lists the threads of a namespace, of all when it is empty, whose run waits for variables, by
	// id, after one.
	EnvWaiting(ctx context.Context, namespace, after string, limit int) ([]string, error)
}

// SetEnv sets variables of the thread, and of its active descendants but those in whose agent graph the name is
// scoped and those below them (ENV-04). A variable without a type keeps the one that it has, a new one is
// secret (ENV-02). Runs that wait for variables go on to look again (ENV-06).
type SetEnv struct{ Vars []EnvVar }

// UnsetEnv removes variables of the thread, and from its active descendants what they inherited of the same
// names.
type UnsetEnv struct {
	Names   []string
	Removed int // filled in: how many the thread itself had
}

// ScopeEnv changes which names the thread does not inherit. What it has inherited of new ones goes.
type ScopeEnv struct{ Names []string }

func (*SetEnv) op()   {}
func (*UnsetEnv) op() {}
func (*ScopeEnv) op() {}
