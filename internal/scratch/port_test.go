package scratch

import (
	"fmt"
	"net"
	"testing"
)

func TestPort(t *testing.T) {
	low := connectionPorts()
	first, end := spanBelow(low)
	seen := map[int]bool{}
	for range 100 {
		port, err := Port()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] {
			t.Fatalf("port %d was given twice", port)
		}
		if seen[port] = true; port < first || port >= end {
			t.Fatalf("port %d is not from %d to %d, where connections begin at %d", port, first, end, low)
		}
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
	}
}

func TestSpanBelow(t *testing.T) {
	for low, want := range map[int][2]int{
		32_768: {20_000, 32_768},
		20_001: {10_000, 20_001}, // too few ports are left above firstPort
		15_000: {10_000, 15_000},
		1_024:  {20_000, 32_768}, // the kernel uses all of them for connections
	} {
		if first, end := spanBelow(low); [2]int{first, end} != want {
			t.Errorf("connections from %d: %d to %d instead of %v", low, first, end, want)
		}
	}
}
