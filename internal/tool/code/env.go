package code

import (
	"context"

	"github.com/skein-dev/skein/internal/store"
)

// env implements state.env(name) (ENV-01). Only the code gets the plain value.
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

// envType implements state.envType(name) (ENV-02).
func envType(ctx context.Context, c *stateCall) (any, error) {
	name, err := c.text(0, "variable's name")
	if err != nil {
		return nil, err
	}
	kind, err := c.host.State.EnvType(ctx, name)
	return string(kind), err
}

// setEnv implements state.setEnv(name, value, {type}) (ENV-02, ENV-04).
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
