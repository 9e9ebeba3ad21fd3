package code

import (
	"context"

	"github.com/skein-dev/skein/internal/store"
)

// env is state.env(name) (ENV-01): the value in clear, for the code alone.
func env(ctx context.Context, c *stateCall) (any, error) {
	name, err := c.text(0, "variable's name")
	if err != nil {
		return nil, err
	}
	v, err := c.host.State.EnvValue(ctx, name)
	if err != nil {
		return nil, err
	}
	return v.Value, nil
}

// envType is state.envType(name) (ENV-02).
func envType(ctx context.Context, c *stateCall) (any, error) {
	name, err := c.text(0, "variable's name")
	if err != nil {
		return nil, err
	}
	kind, err := c.host.State.EnvType(ctx, name)
	return string(kind), err
}

// setEnv is state.setEnv(name, value, {type}) (ENV-02, ENV-04).
func setEnv(ctx context.Context, c *stateCall) (any, error) {
	name, err := c.text(0, "variable's name")
	if err != nil {
		return nil, err
	}
	value, ok := c.arg(1).(string)
	if !ok {
		return nil, c.wrong(1, "the value, a string")
	}
	var options struct {
		Type store.EnvType `json:"type"`
	}
	if err := c.into(2, "the options", &options); err != nil {
		return nil, err
	}
	return nil, c.host.State.SetEnv(ctx, name, value, options.Type)
}
