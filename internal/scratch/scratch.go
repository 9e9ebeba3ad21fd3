// Package scratch provides tests with folders that are fast to write to.
//
// A store syncs the disk at every write. In tests that are not about that, waiting for the disk takes most of the time,
// more so when others write too. So the person who runs the tests may name a folder in memory.
package scratch

import "os"

// EnvMemory is the environment variable that names a folder in memory. Its setter creates the folder, lets other users
// pass through it (PostgreSQL runs as one), and removes it with everything that a killed test has left there.
const EnvMemory = "SKEIN_TEST_MEMORY"

// Test is the part of *testing.T and of GinkgoT() that this package uses.
type Test interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
	TempDir() string
}

// Folder creates a folder that is removed with the test.
func Folder(t Test) string {
	t.Helper()
	if os.Getenv(EnvMemory) == "" {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(Root(), "test-")
	if err != nil {
		t.Fatalf("make a folder for this test: %v", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatalf("remove the folder of this test: %v", err)
		}
	})
	return dir
}

// Root returns where to create folders that outlive a test: the folder in memory, or else that of temporary files.
func Root() string {
	if memory := os.Getenv(EnvMemory); memory != "" {
		return memory
	}
	return os.TempDir()
}
