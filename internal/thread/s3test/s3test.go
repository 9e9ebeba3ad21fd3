// Package s3test runs an S3 server for tests: the Versity gateway, which stores objects as files of a temporary folder.
// The server is a child process of the test on a free port of the loopback interface.
package s3test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/skein-dev/skein/internal/scratch"
	"github.com/skein-dev/skein/internal/sourceroot"
)

// The credentials of the server's only user.
const (
	AccessKey = "skein"
	SecretKey = "skein-in-tests"
)

// Server is an S3 server.
type Server struct {
	dir     string
	address string
	buckets int
	stop    func() error
}

// Start starts a server. It ends with the process that started it. Stop ends it earlier and removes its data.
func Start(ctx context.Context) (*Server, error) {
	program, err := build(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "skein-s3-")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir}
	for _, d := range []string{s.data(), s.side()} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
	if err := s.up(ctx, program); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// side holds the server's metadata of objects, because not every file system has attributes for it.
func (s *Server) side() string { return filepath.Join(s.dir, "side") }

// build builds the program unless it was built before, and returns its path.
func build(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(sourceroot.Dir(), "hack", "tool.sh"), "versitygw")
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("build the S3 server: %w: %s", err, said.String())
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1], nil
}

func (s *Server) up(ctx context.Context, program string) error {
	port, err := scratch.Port()
	if err != nil {
		return err
	}
	s.address = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(program, "--port", s.address, "--access", AccessKey, "--secret", SecretKey, "--health", "/health", "--quiet",
		"posix", "--sidecar", s.side(), s.data())
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started, ended := make(chan error, 1), make(chan struct{})
	go func() {
		// The death signal is tied to the thread that started the process, so keep this thread as long as the server.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
			close(ended)
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start the S3 server: %w", err)
	}
	s.stop = func() error {
		if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		<-ended
		return nil
	}
	return s.await(ctx, ended)
}

// await waits until the server answers.
func (s *Server) await(ctx context.Context, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address+"/health", nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ended:
			said, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			return fmt.Errorf("the S3 server ended: %s", said)
		case <-ctx.Done():
			return errors.Join(ctx.Err(), s.stop())
		case <-tick.C:
		}
	}
}

// Stop ends the server and removes its data.
func (s *Server) Stop() error { return errors.Join(s.stop(), os.RemoveAll(s.dir)) }

// NewBucket creates a bucket and returns its URL, for the environment that Env describes.
func (s *Server) NewBucket() (string, error) {
	s.buckets++
	name := fmt.Sprintf("bucket-%d", s.buckets)
	if err := os.Mkdir(filepath.Join(s.data(), name), 0o700); err != nil {
		return "", err
	}
	q := url.Values{"endpoint": {"http://" + s.address}, "use_path_style": {"true"}, "region": {"us-east-1"}}
	return "s3://" + name + "?" + q.Encode(), nil
}

// Env returns the environment variables that give a process access, as a Secret does in a cluster.
func (s *Server) Env() map[string]string {
	return map[string]string{"AWS_ACCESS_KEY_ID": AccessKey, "AWS_SECRET_ACCESS_KEY": SecretKey, "AWS_EC2_METADATA_DISABLED": "true"}
}
