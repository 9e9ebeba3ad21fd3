// Package pgtest runs PostgreSQL for tests. The server is a child of the test process, in a temporary folder and on a
// free port of the loopback interface, and runs as a user that is not root.
package pgtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/skein-dev/skein/internal/scratch"
)

// role is the server's superuser.
const role = "skein"

// Options are the options of Start.
type Options struct {
	// Durable makes every commit survive a crash of the machine, as on a real server. Tests that only kill processes
	// need not wait for the disk.
	Durable bool
	// Settings are added to the server's, as "name=value".
	Settings []string
	// Dir is a folder for the data, such as one on a disk that the test fills; a temporary folder when it is empty. The user that the
	// server runs as need not reach it by its path.
	Dir string
}

// Server is a PostgreSQL server.
type Server struct {
	options Options
	tools   tools
	dir     string // of the server, removed with it
	data    string // as the server's programs reach it
	folder  *os.File
	port    int
	cred    *syscall.Credential
	made    atomic.Int64

	stop  func(syscall.Signal) error
	ended <-chan struct{}
}

// Start starts a server. It ends with the process that started it. Stop ends it earlier and removes its data.
func Start(ctx context.Context, o Options) (*Server, error) {
	t, err := find()
	if err != nil {
		return nil, err
	}
	sweep()
	dir, err := os.MkdirTemp(scratch.Root(), fmt.Sprintf("%s%d-", prefix, os.Getpid()))
	if err != nil {
		return nil, err
	}
	s := &Server{options: o, tools: t, dir: dir}
	if err := s.make(ctx); err != nil {
		return nil, errors.Join(err, s.remove())
	}
	if err := s.Up(ctx); err != nil {
		return nil, errors.Join(err, s.remove())
	}
	return s, nil
}

// place makes the folder of the data. The server's programs get a folder of the test's own as a descriptor: another user may not reach
// its path.
func (s *Server) place() (err error) {
	data := filepath.Join(s.dir, "data")
	s.data = data
	if s.options.Dir != "" {
		if s.folder, err = os.Open(s.options.Dir); err != nil {
			return err
		}
		data = filepath.Join(s.options.Dir, "data")
		s.data = "/proc/self/fd/3/data" // the first descriptor after the standard ones
	}
	if err := os.Mkdir(data, 0o700); err != nil || s.cred == nil {
		return err
	}
	return errors.Join(os.Chown(s.dir, int(s.cred.Uid), int(s.cred.Gid)), os.Chown(data, int(s.cred.Uid), int(s.cred.Gid)))
}

// handed returns the descriptors that the server's programs get.
func (s *Server) handed() []*os.File {
	if s.folder == nil {
		return nil
	}
	return []*os.File{s.folder}
}

// remove removes the data, unless that is in a folder of the test's own.
func (s *Server) remove() error {
	if s.folder != nil {
		return errors.Join(s.folder.Close(), os.RemoveAll(s.dir))
	}
	return os.RemoveAll(s.dir)
}

func (s *Server) make(ctx context.Context) (err error) {
	if s.cred, err = ordinaryUser(); err != nil {
		return err
	}
	if err := s.place(); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, s.tools.initdb, "-D", s.data, "-U", role, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred}
	cmd.Dir, cmd.ExtraFiles = s.dir, s.handed()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	s.port, err = scratch.Port()
	return err
}

// Up starts the server again after Down.
func (s *Server) Up(ctx context.Context) error {
	args := []string{"-D", s.data, "-p", strconv.Itoa(s.port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=" + s.dir,
		"-c", "max_connections=200", "-c", "shared_buffers=64MB", "-c", "max_wal_size=1GB", "-c", "jit=off"}
	if !s.options.Durable {
		args = append(args, "-c", "fsync=off", "-c", "full_page_writes=off", "-c", "autovacuum=off")
	}
	for _, setting := range s.options.Settings {
		args = append(args, "-c", setting)
	}
	cmd := exec.Command(s.tools.postgres, args...)
	cmd.Dir, cmd.ExtraFiles = s.dir, s.handed()
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	// SIGQUIT makes PostgreSQL shut down immediately.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred, Pdeathsig: syscall.SIGQUIT, Setpgid: true}
	log, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	started, ended := make(chan error, 1), make(chan struct{})
	var waited error
	go func() {
		// The death signal is tied to the thread that started the process, so keep this thread as long as the server.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			<-ended
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	ready := make(chan error, 1)
	go func() {
		ready <- awaitReady(log)
		_, _ = io.Copy(io.Discard, log)
		waited = cmd.Wait()
		close(ended)
	}()
	s.ended = ended
	s.stop = func(sig syscall.Signal) error {
		if err := cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		<-ended
		var exit *exec.ExitError
		if waited != nil && !errors.As(waited, &exit) {
			return waited
		}
		return nil
	}
	select {
	case err := <-ready:
		return err
	case <-ctx.Done():
		return errors.Join(ctx.Err(), s.stop(syscall.SIGQUIT))
	}
}

// awaitReady reads the server's log until the server accepts connections.
func awaitReady(log io.Reader) error {
	var said []string
	for lines := bufio.NewScanner(log); lines.Scan(); {
		if strings.Contains(lines.Text(), "ready to accept connections") {
			return nil
		}
		said = append(said, lines.Text())
	}
	return fmt.Errorf("postgres did not start: %s", strings.Join(said, "; "))
}

// Running reports whether the server has not ended, by Down or by itself.
func (s *Server) Running() bool {
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// Down stops the server at once, without notice to its clients, as a crash would. The data stays.
func (s *Server) Down() error { return s.stop(syscall.SIGQUIT) }

// Stop ends the server and removes its data.
func (s *Server) Stop() error {
	return errors.Join(s.stop(syscall.SIGQUIT), s.remove())
}

// URL returns the URL of a database of the server.
func (s *Server) URL(database string) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", role, s.port, database)
}

// Port returns the port of the server on the loopback interface.
func (s *Server) Port() int { return s.port }

// NewDatabase creates a database as a copy of template ("" for an empty one), and returns its name. Nobody may be
// connected to the template.
func (s *Server) NewDatabase(ctx context.Context, template string) (name string, err error) {
	if template == "" {
		template = "template0"
	}
	if err := s.leave(ctx, template); err != nil {
		return "", err
	}
	name = fmt.Sprintf("db%d", s.made.Add(1))
	return name, s.exec(ctx, fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s", name, template))
}

// DropDatabase removes a database and ends the connections to it.
func (s *Server) DropDatabase(ctx context.Context, name string) error {
	if err := s.leave(ctx, name); err != nil {
		return err
	}
	return s.exec(ctx, fmt.Sprintf("DROP DATABASE %s WITH (FORCE)", name))
}

// leave waits until the server processes of closed connections to a database have ended. They take a moment, and
// PostgreSQL would wait for them for five seconds.
func (s *Server) leave(ctx context.Context, name string) error {
	return s.exec(ctx, fmt.Sprintf("SELECT pg_terminate_backend(pid, 120000) FROM pg_stat_activity WHERE datname = '%s'", name))
}

// Disconnect ends all connections to a database.
func (s *Server) Disconnect(ctx context.Context, name string) error {
	return s.exec(ctx, fmt.Sprintf("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '%s'", name))
}

func (s *Server) exec(ctx context.Context, query string) error {
	c, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return err
	}
	_, err = c.Exec(ctx, query)
	return errors.Join(err, c.Close(ctx))
}

// tools are the paths of PostgreSQL's programs.
type tools struct{ initdb, postgres string }

// find returns the newest PostgreSQL of the machine. It looks in SKEIN_POSTGRES_BIN, in the folders of Debian's
// packages and on PATH.
func find() (tools, error) {
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.SortFunc(dirs, func(a, b string) int { return version(b) - version(a) })
	dirs = append([]string{os.Getenv("SKEIN_POSTGRES_BIN")}, append(dirs, filepath.SplitList(os.Getenv("PATH"))...)...)
	for _, dir := range dirs {
		t := tools{initdb: filepath.Join(dir, "initdb"), postgres: filepath.Join(dir, "postgres")}
		if dir != "" && executable(t.initdb) && executable(t.postgres) {
			return t, nil
		}
	}
	return tools{}, errors.New("the tests need PostgreSQL's server: run hack/postgres.sh install (Debian's package postgresql), " +
		"or say where initdb and postgres are in SKEIN_POSTGRES_BIN")
}

func version(bin string) int {
	v, _ := strconv.Atoi(filepath.Base(filepath.Dir(bin)))
	return v
}

func executable(file string) bool {
	info, err := os.Stat(file)
	return err == nil && !info.IsDir() && info.Mode()&0o111 != 0
}

// ordinaryUser returns the user that the server runs as, because PostgreSQL refuses to run as root; nil for the present
// user.
func ordinaryUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is neither a user postgres nor a user nobody: run the tests as another user")
}

const prefix = "skein-pgtest-"

// sweep removes what killed processes left behind.
func sweep() {
	dirs, _ := filepath.Glob(filepath.Join(scratch.Root(), prefix+"*"))
	for _, dir := range dirs {
		owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), prefix), "-")
		info, err := os.Stat(dir)
		if _, gone := os.Stat("/proc/" + owner); gone != nil && err == nil && time.Since(info.ModTime()) > time.Minute {
			_ = os.RemoveAll(dir)
		}
	}
}
