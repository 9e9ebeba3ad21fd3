package thread

import (
	"context"
	"slices"

	"github.com/skein-dev/skein/internal/store"
)

// SpecEnv is an entry of spec.env of a Thread object with its reference resolved.
type SpecEnv struct {
	Name  string
	Value string
	Type  store.EnvType // secret when empty
	// Entry identifies this state of the entry, and Version the state of what it refers to.
	Entry, Version string
}

// ApplySpecEnv applies the env entries of a thread's object. A variable that was set since stays until its entry changes.
// A variable whose entry was removed is removed, unless it was set since.
func (s *Service) ApplySpecEnv(ctx context.Context, t *store.Thread, spec []SpecEnv) error {
	own, err := s.store.Env(ctx, t.ID)
	if err != nil {
		return err
	}
	var ops []store.Op
	set := &store.SetEnv{}
	for i := range spec {
		e := &spec[i]
		at := slices.IndexFunc(own, func(v store.EnvVar) bool { return v.Name == e.Name })
		if at >= 0 && own[at].Entry == e.Entry && (own[at].Origin != store.EnvSpec || own[at].Version == e.Version) {
			continue
		}
		v, err := s.specEnv(t.Namespace, t.EnvTree(), e)
		if err != nil {
			return err
		}
		set.Vars = append(set.Vars, *v)
	}
	if len(set.Vars) > 0 {
		ops = append(ops, set)
	}
	unset := &store.UnsetEnv{}
	for i := range own {
		if own[i].Origin == store.EnvSpec && !slices.ContainsFunc(spec, func(e SpecEnv) bool { return e.Name == own[i].Name }) {
			unset.Names = append(unset.Names, own[i].Name)
		}
	}
	if len(unset.Names) > 0 {
		ops = append(ops, unset)
	}
	if len(ops) == 0 {
		return nil
	}
	return s.store.Apply(ctx, t.ID, nil, ops...)
}

// specEnv seals an entry.
func (s *Service) specEnv(namespace, root string, e *SpecEnv) (*store.EnvVar, error) {
	if err := CheckEnvName(e.Name); err != nil {
		return nil, err
	}
	if err := checkEnvValue(e.Value); err != nil {
		return nil, err
	}
	kind := e.Type
	if kind == "" {
		kind = store.EnvSecret
	}
	s.registerEnv(namespace, &EnvValue{Name: e.Name, Value: e.Value, Type: kind})
	v, err := s.sealEnv(root, e.Name, e.Value)
	if err != nil {
		return nil, err
	}
	v.Type, v.Origin, v.Entry, v.Version = kind, store.EnvSpec, e.Entry, e.Version
	return v, nil
}

// firstEnv returns the op that sets the variables of a new thread.
func (s *Service) firstEnv(ctx context.Context, n *NewThread) (store.Op, error) {
	if len(n.Env) == 0 {
		return nil, nil
	}
	root := n.ID
	if n.ParentID != "" {
		parent, err := s.store.Thread(ctx, n.ParentID)
		if err != nil {
			return nil, err
		}
		root = parent.EnvTree()
	}
	op := &store.SetEnv{}
	for i := range n.Env {
		v, err := s.specEnv(n.Namespace, root, &n.Env[i])
		if err != nil {
			return nil, err
		}
		op.Vars = append(op.Vars, *v)
	}
	return op, nil
}
