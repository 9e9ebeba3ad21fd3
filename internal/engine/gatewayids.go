package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/codelog"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool/code"
)

// idsProperty tells an isolate which invocation asks for the id of a request's thread.
const idsProperty = "$ids"

// idSandboxTime bounds how long a request waits for a sandbox in which the code of its gateway can run.
const idSandboxTime = 30 * time.Second

// ThreadID asks the code of a ThreadGateway which conversation a request means (IDS-02, IDS-06). The code runs in an isolate of
// its own, in a sandbox that belongs to the gateway. What it returns may be anything and must be checked.
func (e *Engine) ThreadID(ctx context.Context, c *definition.IDCode, request map[string]any) (string, error) {
	limit := c.Timeout + idSandboxTime
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("there was no sandbox for its code, or no answer, within %s", limit))
	defer cancel()
	owner := &store.Thread{ID: c.UID, Namespace: c.Namespace, Name: c.Gateway, Threadless: true, Kind: "ThreadGateway"}
	host := codeexec.NewHost(ctx, e.env, owner, c.Pool, &code.Threadless{})
	host.Lines = codelog.New(codelog.Options{
		Clock: e.opts.Clock, Redact: func(text string) string { return e.opts.Redact(c.Namespace, text) },
		Write:  func(context.Context, ...store.Op) error { return nil },
		Failed: func(error) {},
	})
	host.Lines.Collect()
	defer func() {
		host.Close()
		for _, line := range host.Lines.Collected() {
			e.log.V(1).Info("the code of a ThreadGateway logged", "namespace", c.Namespace, "threadGateway", c.Gateway, "level", line.Level, "text", line.Message)
		}
	}()
	const module = "ids/provider"
	host.Add(module, c.Module, c.Timeout)
	invocation := "ids_" + runlog.NewRunID()
	host.SetProperty(idsProperty, invocation)
	v, err := host.Invoke(ctx, invocation, module, request, c.Timeout)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return "", cause
		}
		return "", errors.New(e.opts.Redact(c.Namespace, "its code failed: "+codeexec.Explain(err)))
	}
	answer, _ := v.(map[string]any)
	if answer["refused"] == true {
		return "", definition.ErrRefusedUser
	}
	id, ok := answer["id"].(string)
	if !ok {
		return "", errors.New("its code returned no text")
	}
	return id, nil
}
