package harness

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

func TestMakeOnce(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "kept")
	dir := filepath.Join(folder, "programs")
	fill := func(dir string) error { return os.WriteFile(filepath.Join(dir, "manager"), []byte("whole"), 0o755) }

	broken := errors.New("broken")
	err := makeOnce(dir, func(dir string) error { return errors.Join(fill(dir), broken) })
	if !errors.Is(err, broken) {
		t.Errorf("a folder that cannot be made: %v", err)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("a folder that cannot be made leaves %v (%v)", left, err)
	}

	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if err := makeOnce(dir, fill); err != nil {
				t.Error(err)
			}
			if text, err := os.ReadFile(filepath.Join(dir, "manager")); err != nil || string(text) != "whole" {
				t.Errorf("it has %q (%v)", text, err)
			}
		})
	}
	all.Wait()
	if left, err := os.ReadDir(folder); err != nil || len(left) != 1 {
		t.Errorf("%v is left (%v)", left, err)
	}
	if err := makeOnce(dir, func(string) error { return broken }); err != nil {
		t.Errorf("what is there is made again: %v", err)
	}
}

func TestPrune(t *testing.T) {
	now := time.Now()
	folder := t.TempDir()
	ages := map[string]time.Duration{
		"used":           2 * keepUnused,
		"of another":     keepUnused - time.Hour,
		"old":            keepUnused + time.Hour,
		"making-dropped": keepUnused + time.Hour,
	}
	for name, age := range ages {
		dir := filepath.Join(folder, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "manager"), nil, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(dir, now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	used := filepath.Join(folder, "used")
	left := func(now time.Time) []string {
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if err := prune(used, now); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		entries, err := os.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	if names := left(now); !slices.Equal(names, []string{"of another", "used"}) {
		t.Errorf("%q are left", names)
	}
	if _, err := os.Stat(filepath.Join(used, "manager")); err != nil {
		t.Errorf("what is used lost its program: %v", err)
	}
	if names := left(now.Add(2 * time.Hour)); !slices.Equal(names, []string{"used"}) {
		t.Errorf("%q are left two hours later", names)
	}
	if err := prune(filepath.Join(folder, "missing"), now); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
}
