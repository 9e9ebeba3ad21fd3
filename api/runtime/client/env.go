package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// Errors about variables.
var (
	// ErrEnvUnknown means that no source has the variable (ENV-01). It is an ErrNotFound.
	ErrEnvUnknown = fmt.Errorf("there is no such variable: %w", ErrNotFound)
	// ErrEnvSecret means that the variable is a secret. No answer of the runtime API contains one. Code reads it with
	// state.env.
	ErrEnvSecret = errors.New("the variable is a secret, whose value is not shown")
)

// Env returns the value of a text variable from the first source that has it: thread, user, instance, agent, prompt
// (ENV-01). It returns ErrEnvUnknown when no source has it, and ErrEnvSecret when it is a secret.
func (t *Thread) Env(ctx context.Context, name string) (string, error) {
	v, err := t.EnvVar(ctx, name)
	switch {
	case err != nil:
		return "", err
	case v == nil:
		return "", fmt.Errorf("%w: %s", ErrEnvUnknown, name)
	case v.Value == nil:
		return "", fmt.Errorf("%w: %s", ErrEnvSecret, name)
	}
	return *v.Value, nil
}

// EnvVar returns a variable with its type and source, and with its value if it is a text. It returns nil when no
// source has the variable.
func (t *Thread) EnvVar(ctx context.Context, name string) (*runtimev1.EnvVar, error) {
	v, err := readAs[runtimev1.EnvVar](ctx, t, nil, runtimev1.SubresourceEnv, name)
	return v, t.absentBelow(ctx, err)
}

// EnvType returns whether a variable is a text or a secret; an unknown variable counts as a secret (ENV-02).
func (t *Thread) EnvType(ctx context.Context, name string) (string, error) {
	v, err := t.EnvVar(ctx, name)
	if err != nil || v == nil {
		return runtimev1.EnvSecret, err
	}
	return v.Type, nil
}

// SetEnv sets a variable of the thread and of its active descendants (ENV-04). kind is text or secret. When kind is
// empty the variable keeps its type, and a new one is a secret (ENV-02).
func (t *Thread) SetEnv(ctx context.Context, name, value, kind string) error {
	return t.send(ctx, http.MethodPut, runtimev1.NewEnvValue{Value: &value, Type: kind}, nil, runtimev1.SubresourceEnv, name)
}

// UnsetEnv removes a variable of the thread itself, and what its descendants inherited from it. It returns false when
// the thread had none of this name.
func (t *Thread) UnsetEnv(ctx context.Context, name string) (bool, error) {
	err := t.send(ctx, http.MethodDelete, nil, nil, runtimev1.SubresourceEnv, name)
	if apierrors.IsNotFound(err) {
		return false, t.absentBelow(ctx, err)
	}
	return err == nil, err
}

// ListEnv returns a page of the variables that the thread sees, by name. Where the two sides of its agent see
// different values, each has an entry with its Side.
func (t *Thread) ListEnv(ctx context.Context, p Page) (*runtimev1.EnvVarList, error) {
	return t.ListEnvOf(ctx, "", p)
}

// ListEnvOf returns a page of the variables that one side of the thread's agent sees, "a" or "b", by name. With "" it
// does the same as ListEnv. Side b of an agent without one is an ErrInvalid.
func (t *Thread) ListEnvOf(ctx context.Context, side string, p Page) (*runtimev1.EnvVarList, error) {
	params := p.params()
	if side != "" {
		params["side"] = side
	}
	return readAs[runtimev1.EnvVarList](ctx, t, params, runtimev1.SubresourceEnv)
}

// PendingEnv returns the variables that the thread waits for (ENV-06).
func (t *Thread) PendingEnv(ctx context.Context) (*runtimev1.EnvRequest, error) {
	return readAs[runtimev1.EnvRequest](ctx, t, nil, runtimev1.SubresourceEnv, runtimev1.EnvRequestPath)
}
