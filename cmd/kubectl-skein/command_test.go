package main

import (
	"bytes"
	"context"
	"strings"
	"sync"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// outputs are the outputs of a command.
type outputs struct {
	code     int
	out, err string
}

type command struct {
	ctx        context.Context
	ns         string
	stdin      string
	kubeconfig string
}

func (c command) run(args ...string) outputs {
	var out, errOut bytes.Buffer
	streams := genericiooptions.IOStreams{In: strings.NewReader(c.stdin), Out: &out, ErrOut: &errOut}
	file := c.kubeconfig
	if file == "" {
		file = kubeconfig
	}
	code := run(c.ctx, streams, append([]string{"--kubeconfig", file, "-n", c.ns}, args...))
	return outputs{code: code, out: out.String(), err: errOut.String()}
}

// lockedBuffer may be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
