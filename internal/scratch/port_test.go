package scratch_test

import (
	"fmt"
	"net"
	"testing"

	"github.com/skein-dev/skein/internal/scratch"
)

func TestPort(t *testing.T) {
	kernels, err := net.Listen("tcp", "127.0.0.1:0") // one of those that connections get
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = kernels.Close() }()
	seen := map[int]bool{}
	for range 100 {
		port, err := scratch.Port()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] {
			t.Fatalf("port %d was given twice", port)
		}
		if seen[port] = true; port >= kernels.Addr().(*net.TCPAddr).Port {
			t.Fatalf("port %d may be a connection's", port)
		}
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
	}
}
