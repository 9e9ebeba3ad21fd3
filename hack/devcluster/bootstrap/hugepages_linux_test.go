package main

import (
	"bytes"
	"os"
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
		"a slow machine where none get them":     {before: "always madvise [never]", cost: 20 * time.Microsecond, during: "always", says: "and to never after it"},
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
