package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestHugePages(t *testing.T) {
	for name, c := range map[string]struct {
		before   string
		cost     time.Duration
		readOnly bool
		during   string
		says     string
	}{
		"a slow machine":                         {before: "always [madvise] never", cost: 20 * time.Microsecond, during: "always", says: "takes 20 µs"},
		"a slow machine where none get them":     {before: "always madvise [never]", cost: 20 * time.Microsecond, during: "always", says: "and to never afterwards"},
		"a slow machine of another user":         {before: "always [madvise] never", cost: 20 * time.Microsecond, readOnly: true, during: "always [madvise] never", says: "as root"},
		"a machine whose pages are fast":         {before: "always [madvise] never", cost: time.Microsecond, during: "always [madvise] never"},
		"a machine where all programs have them": {before: "[always] madvise never", cost: 20 * time.Microsecond, during: "[always] madvise never"},
	} {
		t.Run(name, func(t *testing.T) {
			setting := filepath.Join(t.TempDir(), "enabled")
			if err := os.WriteFile(setting, []byte(c.before), 0o644); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			h := hugePages{setting: setting, cost: func() time.Duration { return c.cost }, write: os.WriteFile, out: &out}
			if c.readOnly {
				h.write = func(string, []byte, os.FileMode) error { return os.ErrPermission }
			}
			restore := h.use()
			if got := content(t, setting); got != c.during {
				t.Errorf("during the build the setting is %q, not %q", got, c.during)
			}
			if !strings.Contains(out.String(), c.says) || (c.says == "") != (out.Len() == 0) {
				t.Errorf("it says %q, without %q", out.String(), c.says)
			}
			if c.during == "always" { // the kernel marks the mode that holds
				if err := os.WriteFile(setting, []byte("[always] madvise never"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			restore()
			want := c.during
			if c.during == "always" {
				want = chosen(c.before)
			}
			if got := content(t, setting); got != want {
				t.Errorf("after the build the setting is %q, not %q", got, want)
			}
		})
	}
}

func TestHugePagesThatWereChangedMeanwhileStay(t *testing.T) {
	setting := filepath.Join(t.TempDir(), "enabled")
	if err := os.WriteFile(setting, []byte("always [madvise] never"), 0o644); err != nil {
		t.Fatal(err)
	}
	restore := hugePages{setting: setting, cost: func() time.Duration { return time.Millisecond }, write: os.WriteFile, out: &bytes.Buffer{}}.use()
	if err := os.WriteFile(setting, []byte("always madvise [never]"), 0o644); err != nil {
		t.Fatal(err)
	}
	restore()
	if got := content(t, setting); got != "always madvise [never]" {
		t.Errorf("the setting is %q", got)
	}
}

func TestTheCommandWithHugePagesEndsAsItWould(t *testing.T) {
	var x *exec.ExitError
	if err := withHugePages(t.Context(), io.Discard, []string{"sh", "-c", "exit 7"}); !errors.As(err, &x) || x.ExitCode() != 7 {
		t.Errorf("the command exits with 7, and this returns %v", err)
	}
	if err := withHugePages(t.Context(), io.Discard, []string{"true"}); err != nil {
		t.Error(err)
	}
	if err := withHugePages(t.Context(), io.Discard, nil); err == nil {
		t.Error("there is no command")
	}
	ctx, cancel := context.WithCancel(t.Context())
	said := newPipe(t, filepath.Join(t.TempDir(), "said"))
	done := make(chan error, 1)
	go func() {
		// The process that waits says itself that it has begun: a signal between its fork and its exec is lost, and it would wait on.
		script := `trap 'kill $!; echo asked >"$0"; exit 5' TERM; sh -c 'echo begun >"$0"; exec sleep 600' "$0" & wait`
		done <- withHugePages(ctx, io.Discard, []string{"sh", "-c", script, said.name})
	}()
	if line := said.next(t, "the command to begin"); line != "begun" {
		t.Fatal(line)
	}
	cancel()
	if line := said.next(t, "the command to be asked to end"); line != "asked" {
		t.Fatal(line)
	}
	if err := <-done; err == nil {
		t.Error("no error")
	}
}

func TestPageCost(t *testing.T) {
	if cost := pageCost(); cost <= 0 || cost > time.Second {
		t.Errorf("a page takes %v", cost)
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
