package scratch

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
)

// firstPort that a server of a test may get. Below are those of servers that people run.
const firstPort = 20_000

var (
	portLock sync.Mutex
	given    = map[int]bool{}
)

// Port finds a loopback port for a server that is yet to start, or that is to start there again and again. Nobody listens on it,
// this process has not been given it before, and it is none of those that the kernel gives to connections: one of these is taken
// as soon as any connection of the machine happens to get it, which it may keep.
func Port() (int, error) {
	var low, high int
	raw, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err == nil {
		_, err = fmt.Sscan(string(raw), &low, &high)
	}
	if err != nil || low <= firstPort {
		low = 32_768 // what kernels have when nobody says more
	}
	portLock.Lock()
	defer portLock.Unlock()
	for range 1000 {
		port := firstPort + rand.IntN(low-firstPort)
		if given[port] {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
		if err != nil {
			continue
		}
		given[port] = true
		return port, l.Close()
	}
	return 0, errors.New("no loopback port is free")
}
