// Package scratch gives tests folders that are quick to write to.
//
// A store syncs the disk at every write. Where that is not what a test is about, waiting for the disk is most of its time, the
// more so where others write too. Whoever runs the tests may therefore name a folder in memory.
package scratch

import "os"

// EnvMemory names a folder in memory. Who sets it makes the folder, lets other users pass through it (PostgreSQL runs as one), and
// removes it with all that a killed test has left there.
const EnvMemory = "SKEIN_TEST_MEMORY"

// Test is what is asked of *testing.T and of GinkgoT().
type Test interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
	TempDir() string
}

// Folder makes a folder that goes away with the test.
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

// Root is where folders are to be made that outlive a test: the folder in memory, else that of temporary files.
func Root() string {
	if memory := os.Getenv(EnvMemory); memory != "" {
		return memory
	}
	return os.TempDir()
}
