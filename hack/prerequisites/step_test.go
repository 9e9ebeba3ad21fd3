package prerequisites

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	ossignal "os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// step runs hack/step.sh with a command, and has its temporary files in a folder of their own.
func step(t *testing.T, command ...string) (cmd *exec.Cmd, tmp string, stderr *strings.Builder) {
	t.Helper()
	tmp, stderr = t.TempDir(), &strings.Builder{}
	cmd = exec.Command(filepath.Join("..", "step.sh"), append([]string{"Work"}, command...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	cmd.Stderr = stderr
	return cmd, tmp, stderr
}

func left(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// What the command started is in the way of the next try: it writes to the same places and holds locks.
func TestAnInterruptEndsAllThatAStepStarted(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if ossignal.Ignored(signal) {
			continue // a shell cannot trap what was ignored when it began
		}
		fifo := filepath.Join(t.TempDir(), "fifo")
		if err := syscall.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
		// Both processes hold the pipe open: it ends when both have.
		cmd, tmp, stderr := step(t, "sh", "-c", `exec 3>"$0"; sleep 1000 & echo works >&3; wait`, fifo)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if cmd.ProcessState == nil {
				_ = cmd.Process.Signal(syscall.SIGTERM)
				_ = cmd.Wait()
			}
		})
		pipe, err := os.Open(fifo)
		if err != nil {
			t.Fatal(err)
		}
		if err := pipe.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(pipe)
		if line, err := in.ReadString('\n'); line != "works\n" {
			t.Fatalf("%q, %v: %s", line, err, stderr)
		}
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // its exit code is looked at below
		if code := cmd.ProcessState.ExitCode(); code != 130 {
			t.Errorf("%v: exit code %d: %s", signal, code, stderr)
		}
		if _, err := io.ReadAll(in); err != nil {
			t.Errorf("%v: something of it still runs: %v", signal, err)
		}
		if names := left(t, tmp); len(names) > 0 {
			t.Errorf("%v: it left %v", signal, names)
		}
		_ = pipe.Close()
	}
}

func TestAStepShowsOutputOfFailuresOnly(t *testing.T) {
	cmd, tmp, stderr := step(t, "sh", "-c", "echo one; echo two >&2")
	if out, err := cmd.Output(); err != nil || len(out) > 0 {
		t.Errorf("%q, %v", out, err)
	}
	if text := stderr.String(); !strings.HasPrefix(text, "==> Work (") || strings.Contains(text, "one") || strings.Contains(text, "two") {
		t.Errorf("%s", text)
	}
	cmd, other, stderr := step(t, "sh", "-c", "echo one; echo two >&2; exit 3")
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("%v", err)
	}
	if text := stderr.String(); !strings.Contains(text, "==> Work: failed after") || !strings.Contains(text, "one\ntwo\n") {
		t.Errorf("%s", text)
	}
	if names := append(left(t, tmp), left(t, other)...); len(names) > 0 {
		t.Errorf("it left %v", names)
	}
}

// An interrupt must not leave packages that are half installed, and what is fetched is said before.
func TestPackagesAreInstalledWhole(t *testing.T) {
	m := newMachine(t)
	for _, name := range []string{"flock", "mktemp", "rm", "setsid", "sleep", "tr", "uname"} {
		real, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(filepath.Join(m.bin, name))
		if err := os.Symlink(real, filepath.Join(m.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	m.program("apt-cache", "")
	m.program("apt-get", `case "$*" in
*--print-uris*) echo "'http://a/one.deb' one.deb 1500000 MD5Sum:0"; echo "'http://a/two.deb' two.deb 700000 MD5Sum:0" ;;
*) echo "$*" >'`+dir+`/args'; echo $$ >'`+dir+`/apt'; set -- $(cat /proc/$$/stat); echo $6 >'`+dir+`/session' ;;
esac`)
	cmd := exec.Command(filepath.Join("..", "need.sh"), "no-such-program=one")
	cmd.Env = append(os.Environ(), "PATH="+m.bin, "TMPDIR="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !strings.Contains(string(out), "apt-get installs one with what it needs: 2 packages, 2.2 MB to fetch") {
		t.Errorf("%s", out)
	}
	pid, _ := os.ReadFile(filepath.Join(dir, "apt"))
	session, _ := os.ReadFile(filepath.Join(dir, "session"))
	if len(pid) == 0 || string(pid) != string(session) {
		t.Errorf("apt-get has the process id %s and the session %s: an interrupt reaches it", pid, session)
	}
	if args, _ := os.ReadFile(filepath.Join(dir, "args")); !strings.Contains(string(args), "-o DPkg::Lock::Timeout=300 one") {
		t.Errorf("%s", args)
	}
}
