package scratch

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
)

const (
	// firstPort that a server of a test may get. Below are those of servers that people run.
	firstPort = 20_000
	// lowerPort is the first where connections leave too few above firstPort.
	lowerPort = 10_000
	// enoughPorts for all tests of a machine.
	enoughPorts = 2_000
	// usualPort is the first of connections where nobody has said another to the kernel.
	usualPort = 32_768
)

var (
	portLock sync.Mutex
	given    = map[int]bool{}
)

// Port finds a loopback port for a server that is yet to start, or that is to start there again and again. Nobody listens on it,
// this process has not been given it before, and it is none of those that the kernel gives to connections, where these leave any:
// one of these is taken as soon as any connection of the machine happens to get it, which it may keep.
func Port() (int, error) {
	first, end := spanBelow(connectionPorts())
	portLock.Lock()
	defer portLock.Unlock()
	for range 1000 {
		port := first + rand.IntN(end-first)
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

// connectionPorts gives the first port of those that the kernel gives to connections.
func connectionPorts() int {
	var low, high int
	raw, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err == nil {
		_, err = fmt.Sscan(string(raw), &low, &high)
	}
	if err != nil {
		return usualPort
	}
	return low
}

// spanBelow gives the ports for servers where connections have those from low up: from first up to, but without, end.
func spanBelow(low int) (first, end int) {
	switch {
	case low >= firstPort+enoughPorts:
		return firstPort, low
	case low >= lowerPort+enoughPorts:
		return lowerPort, low
	}
	return firstPort, usualPort // all are connections', and none is better than another
}
