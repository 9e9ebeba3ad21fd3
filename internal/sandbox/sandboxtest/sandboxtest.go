//go:build linux && (amd64 || arm64)

// Package sandboxtest runs a real supervisor, with real children, inside a test. The test binary is its own child, so
// TestMain must call Main.
package sandboxtest

import (
	"cmp"
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/client"
	"github.com/skein-dev/skein/internal/sandbox/pki"
	"github.com/skein-dev/skein/internal/sandbox/supervisor"
)

// Main turns the test binary into a child or a supervisor when it was started as one. TestMain must call it first.
func Main() {
	if code, ok := supervisor.Dispatch(os.Args); ok {
		os.Exit(code)
	}
}

// ServerName is the name of the supervisors of this package.
const ServerName = "sandbox.test.default.skein.dev"

// T is the part of *testing.T and GinkgoT() that this package needs.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
	TempDir() string
	Cleanup(func())
}

// Supervisor is a supervisor under test.
type Supervisor struct {
	Addr    string // of the mTLS listener
	Health  string // of the plain listener
	CertDir string
	CA      pki.Pair
	Client  pki.Pair

	cancel context.CancelFunc
	done   chan error
	once   sync.Once
	err    error
}

// Start starts a supervisor for the duration of the test. change may adjust its options.
func Start(t T, change func(*supervisor.Options)) *Supervisor {
	t.Helper()
	s := &Supervisor{CertDir: t.TempDir(), done: make(chan error, 1)}
	if err := s.issue(); err != nil {
		t.Fatalf("certificates: %v", err)
	}
	exe, err := childProgram()
	if err != nil {
		t.Fatalf("%v", err)
	}
	o := supervisor.Defaults()
	o.CertDir, o.Program, o.Drain = s.CertDir, exe, 5*time.Second
	o.Engine, o.Deno = engine()
	if change != nil {
		change(&o)
	}
	server, err := supervisor.New(o)
	if err != nil {
		t.Fatalf("supervisor: %v", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("%v", err)
	}
	health, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("%v", err)
	}
	s.Addr, s.Health = listener.Addr().String(), health.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go func() { s.done <- server.Serve(ctx, listener, health) }()
	t.Cleanup(func() { _ = s.Stop() })
	return s
}

// ChildEnv is the variable that names another program for the children, because an engine with a race detector is too
// slow.
const ChildEnv = "SKEIN_TEST_SANDBOX"

// EngineEnv is the variable that names the engine of the children, and DenoEnv the program for sandbox.V8, so that a
// whole suite can run on another engine.
const (
	EngineEnv = "SKEIN_TEST_ENGINE"
	DenoEnv   = "SKEIN_TEST_DENO"
)

// engine returns the engine of the children, and the program of Deno, which V8 needs.
func engine() (sandbox.Engine, string) { return Engine(), os.Getenv(DenoEnv) }

// Engine returns the engine of the children.
func Engine() sandbox.Engine { return cmp.Or(sandbox.Engine(os.Getenv(EngineEnv)), sandbox.QuickJS) }

// Small reports whether the supervisors have a small program for their children, and so two kinds of them and a compiler: where the program of
// ChildEnv has it beside it.
func Small() bool {
	program := os.Getenv(ChildEnv)
	_, err := os.Stat(filepath.Join(filepath.Dir(program), supervisor.SmallProgram))
	return program != "" && err == nil && Engine() == sandbox.QuickJS
}

// AtRest returns how many processes a supervisor has while it executes nothing, after its first run: the ready children, and a compiler if it has
// one.
func AtRest(prefork int) int {
	if Small() {
		return 2*prefork + 1
	}
	return prefork
}

func childProgram() (string, error) {
	if exe := os.Getenv(ChildEnv); exe != "" {
		return exe, nil
	}
	return os.Executable()
}

// Stop ends the supervisor as SIGTERM does, and waits until all of it is gone.
func (s *Supervisor) Stop() error {
	s.once.Do(func() {
		s.cancel()
		s.err = <-s.done
	})
	return s.err
}

func (s *Supervisor) issue() error {
	var err error
	if s.CA, err = pki.NewCA(clock.RealClock{}, "test", time.Hour); err != nil {
		return err
	}
	if s.Client, err = pki.IssueClient(clock.RealClock{}, s.CA, "manager", time.Hour); err != nil {
		return err
	}
	return s.WriteServerCert()
}

// WriteServerCert issues another certificate for the supervisor and writes it where the supervisor reads it.
func (s *Supervisor) WriteServerCert() error { return s.WriteServerCertAt(clock.RealClock{}) }

// WriteServerCertAt does the same at another time. The certificate is valid for an hour from then.
func (s *Supervisor) WriteServerCertAt(c clock.PassiveClock) error {
	return s.writeCerts(c, s.CA, s.CA.Cert)
}

// WriteCerts makes the supervisor serve with a certificate of one authority and trust those in a PEM text.
func (s *Supervisor) WriteCerts(by pki.Pair, trusted []byte) error {
	return s.writeCerts(clock.RealClock{}, by, trusted)
}

func (s *Supervisor) writeCerts(c clock.PassiveClock, by pki.Pair, trusted []byte) error {
	server, err := pki.IssueServer(c, by, ServerName, time.Hour)
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{"tls.crt": server.Cert, "tls.key": server.Key, "ca.crt": trusted} {
		// A new file each time, put in place atomically, as in a Secret's volume: two writes may come within one tick
		// of the clock for file times.
		file := filepath.Join(s.CertDir, name)
		if err := os.WriteFile(file+".new", content, 0o600); err != nil {
			return err
		}
		if err := os.Rename(file+".new", file); err != nil {
			return err
		}
	}
	return nil
}

// Dial connects for a thread.
func (s *Supervisor) Dial(t T, thread string) *client.Client {
	t.Helper()
	c, err := client.Dial(client.Options{Address: s.Addr, ServerName: ServerName, CA: s.CA.Cert, Client: s.Client, ThreadID: thread})
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
