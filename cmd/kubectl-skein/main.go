// Command kubectl-skein is the kubectl plugin of Skein: `kubectl skein send hello "good morning" --wait`.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	ctrllog.SetLogger(logr.Discard()) // or the library of the client complains after 30 seconds that it has no logger
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	os.Exit(run(untilSignal(), streams, commandLine(os.Args)))
}

// errTerminated is the cause of a context that SIGTERM has ended.
var errTerminated = errors.New("terminated")

// errInterrupted means that an interrupt has ended a session of development.
var errInterrupted = errors.New("interrupted")

// errLeft means that an interrupt has ended a chat.
var errLeft = errors.New("interrupted; the thread goes on")

// untilSignal returns a context that ends with the first interrupt or SIGTERM. A second one ends the process at once,
// unless the command handles it.
func untilSignal() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		var cause error
		if s := <-signals; s == syscall.SIGTERM {
			cause = errTerminated
		}
		signal.Stop(signals)
		cancel(cause)
	}()
	return ctx
}

// untilTerminated returns a context that ends with SIGTERM, and not with an interrupt.
func untilTerminated(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	stop := context.AfterFunc(parent, func() {
		if err := context.Cause(parent); errors.Is(err, errTerminated) {
			cancel(err)
		}
	})
	return ctx, func() { stop(); cancel(nil) }
}
