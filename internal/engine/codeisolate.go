package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/skein-dev/skein/internal/sandbox"
)

// describe asks a module what it declares.
func (c *codeHost) describe(ctx context.Context, module string) (*sandbox.Description, error) {
	iso, _, err := c.isolate(ctx, false)
	if err != nil {
		return nil, err
	}
	d, err := iso.Describe(ctx, module)
	var gone *sandbox.IsolateGoneError
	if errors.As(err, &gone) {
		c.drop(iso)
	}
	return d, err
}

// isolate gives the execution's isolate, opening it when there is none. A sandbox that cannot open one is
// given up for another, once; unless it could not because the execution, or ctx, was over.
func (c *codeHost) isolate(ctx context.Context, retried bool) (sandbox.Isolate, sandbox.Sandbox, error) {
	if c.life.Err() != nil { // so is the isolate, whether or not it is known yet
		return nil, nil, &sandbox.IsolateGoneError{Status: sandbox.StatusTerminated, Reason: context.Cause(c.life).Error()}
	}
	c.mu.Lock()
	iso, sbx := c.iso, c.sbx
	c.mu.Unlock()
	if iso != nil {
		return iso, sbx, nil
	}
	static, err := c.state.Static(ctx)
	if err != nil {
		return nil, nil, err
	}
	if c.endpoint != "" {
		static[endpointProperty] = c.endpoint
	}
	if c.prefix != "" {
		static[handlerProperty] = c.prefix
	}
	platform, err := c.engine.opts.Definitions.RuntimeContext(ctx, c.thread.Namespace, c.pool)
	if err != nil {
		return nil, nil, err
	}
	if platform != nil {
		static[runtimeContextProperty] = platform
	}
	for ; ; retried = true {
		iso, sbx, err := c.open(ctx, static)
		if err == nil {
			return iso, sbx, nil
		}
		var gone *sandbox.IsolateGoneError
		if sbx == nil || retried || ctx.Err() != nil || c.life.Err() != nil || !errors.As(err, &gone) {
			return nil, nil, err
		}
		c.discard(ctx, sbx)
	}
}

func (c *codeHost) open(ctx context.Context, static map[string]any) (sandbox.Isolate, sandbox.Sandbox, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.iso != nil {
		return c.iso, c.sbx, nil
	}
	sbx, err := c.sandbox(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errNoSandbox, err)
	}
	// A sandbox that is busy takes its time to say so, for which ctx may be too short; once there is an isolate, it lives
	// as long as the execution.
	life, cancel := context.WithCancel(c.life)
	keep := context.AfterFunc(ctx, cancel)
	iso, err := sbx.OpenIsolate(life, sandbox.IsolateRequest{
		Modules: maps.Clone(c.modules), Host: c.serve, Static: static, WallTime: c.wall, Log: c.logged,
	})
	kept := keep()
	if err != nil {
		cancel()
		return nil, sbx, fmt.Errorf("the sandbox could not take the code: %w", err)
	}
	if !kept {
		_ = iso.Close() // it ends one way or another
		return nil, sbx, fmt.Errorf("the sandbox could not take the code: %w", context.Cause(ctx))
	}
	c.iso = iso
	c.engine.fault("isolate.opened")
	return iso, sbx, nil
}

// opened tells whether there is an isolate.
func (c *codeHost) opened() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.iso != nil
}

// drop forgets an isolate that is of no use any more.
func (c *codeHost) drop(iso sandbox.Isolate) {
	c.mu.Lock()
	if c.iso == iso {
		c.iso = nil
	}
	c.mu.Unlock()
	_ = iso.Close() // it is gone, or is to go
}
