//go:build linux && (amd64 || arm64)

package supervisor

import (
	"os"
	"path/filepath"
	"testing"
)

func TestOwnMemory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "memory.max")
	for _, c := range []struct {
		limit string
		want  int64
	}{{"536870912\n", 448 << 20}, {"max\n", 0}, {"67108864\n", 64 << 20}, {"", 0}} {
		if err := os.WriteFile(file, []byte(c.limit), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := ownMemory(file, 64<<20, 64<<20); got != c.want {
			t.Errorf("a limit of %q leaves %d, not %d", c.limit, got, c.want)
		}
	}
	if got := ownMemory(file+".none", 64<<20, 64<<20); got != 0 {
		t.Errorf("without a container it is %d", got)
	}
}
