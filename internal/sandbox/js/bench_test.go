//go:build linux && (amd64 || arm64)

package js_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/skein-dev/skein/internal/sandbox/js"
	"github.com/skein-dev/skein/internal/sandbox/js/qjs"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// BenchmarkFirstCall measures the first call of a tool in an isolate, with an existing engine that has no libraries loaded.
func BenchmarkFirstCall(b *testing.B) {
	for name, code := range map[string]string{
		"plain": "export default (state, args) => 1",
		"zod":   "import { defineTool } from '@standardagents/builder'; import { z } from 'zod'; export default defineTool({ args: z.object({ n: z.number().optional() }), execute: () => 1 })",
	} {
		b.Run(name, func(b *testing.B) {
			var times []time.Duration
			for b.Loop() {
				times = append(times, firstCall(b, code))
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "p50-ms")
		})
	}
}

// firstCall returns the time from an isolate's Open to the answer of a call.
func firstCall(b *testing.B, code string) time.Duration {
	b.Helper()
	inR, inW, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	vm, err := qjs.New()
	if err != nil {
		b.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = js.Serve(vm, protocol.NewConn(inR, outW, nil), js.Images{}, nil)
	}()
	defer func() {
		_ = inW.Close()
		<-ended
		vm.Close()
		for _, f := range []*os.File{inR, outR, outW} {
			_ = f.Close()
		}
	}()
	open := protocol.Open{Limits: protocol.Limits{Kind: protocol.KindIsolate}, Modules: []protocol.Module{{Name: "t", Source: code}}}
	encoded, err := open.Encode()
	if err != nil {
		b.Fatal(err)
	}
	c := protocol.NewConn(outR, inW, nil)
	begun := time.Now()
	for _, f := range []struct {
		typ     protocol.Type
		content []byte
	}{{protocol.TypeOpen, encoded}, {protocol.TypeInvoke, (&protocol.Invoke{ID: 1, Invocation: "i", Module: "t"}).Encode()}} {
		if err := c.Write(f.typ, f.content); err != nil {
			b.Fatal(err)
		}
	}
	for {
		typ, content, err := c.Read()
		if err != nil {
			b.Fatal(err)
		}
		if typ != protocol.TypeSettled {
			continue
		}
		s, err := protocol.ParseSettled(content)
		if err != nil || s.Err != nil {
			b.Fatal(err, s.Err)
		}
		return time.Since(begun)
	}
}
