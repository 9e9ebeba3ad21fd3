package codeexec

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/skein-dev/skein/internal/sandbox"
)

// describe returns what a module declares.
func (c *Host) describe(ctx context.Context, module string) (*sandbox.Description, error) {
	iso, _, err := c.Isolate(ctx, false)
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

// Isolate returns the execution's isolate, and opens it if there is none. If a sandbox cannot open one it is discarded
// for another, once. That does not happen if the execution or ctx has ended.
func (c *Host) Isolate(ctx context.Context, retried bool) (sandbox.Isolate, sandbox.Sandbox, error) {
	if c.life.Err() != nil { // the isolate has ended with the execution, even if that was not noticed yet
		return nil, nil, &sandbox.IsolateGoneError{Status: sandbox.StatusTerminated, Reason: context.Cause(c.life).Error()}
	}
	c.mu.Lock()
	iso, sbx := c.iso, c.sbx
	c.mu.Unlock()
	if iso != nil {
		return iso, sbx, nil
	}
	static, err := c.State.Static(ctx)
	if err != nil {
		return nil, nil, err
	}
	maps.Copy(static, c.static)
	platform, err := c.env.Definitions.RuntimeContext(ctx, c.thread.Namespace, c.pool)
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

// open opens an isolate, unless there is one. After a failure the sandbox is nil if none could be acquired.
func (c *Host) open(ctx context.Context, static map[string]any) (sandbox.Isolate, sandbox.Sandbox, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.iso != nil {
		return c.iso, c.sbx, nil
	}
	sbx, err := c.sandbox(ctx)
	if err != nil {
		return nil, nil, NoSandbox(err)
	}
	// ctx bounds the opening only, because a busy sandbox may take long to refuse. An open isolate lives as long as the
	// execution.
	life, cancel := context.WithCancel(c.life)
	keep := context.AfterFunc(ctx, cancel)
	iso, err := sbx.OpenIsolate(life, sandbox.IsolateRequest{
		Modules: maps.Clone(c.modules), Host: c.Serve, Static: static, WallTime: c.wall, Log: c.logLine,
	})
	kept := keep()
	if err != nil {
		cancel()
		return nil, sbx, fmt.Errorf("the sandbox could not load the code: %w", err)
	}
	if !kept {
		_ = iso.Close() // life is cancelled, so the isolate ends even if this fails
		return nil, sbx, fmt.Errorf("the sandbox could not load the code: %w", context.Cause(ctx))
	}
	c.iso = iso
	c.env.fault("isolate.opened")
	return iso, sbx, nil
}

// HasIsolate reports whether there is an isolate that still lives.
func (c *Host) HasIsolate() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.iso != nil && c.life.Err() == nil
}

// drop closes an isolate that can no longer be used, and forgets it.
func (c *Host) drop(iso sandbox.Isolate) {
	c.mu.Lock()
	if c.iso == iso {
		c.iso = nil
	}
	c.mu.Unlock()
	_ = iso.Close() // it may have ended already
}
