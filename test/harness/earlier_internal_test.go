package harness

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
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
