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
	// firstPort is the lowest port that a test's server may get. The ports below it belong to servers that people run.
	firstPort = 20_000
	// lowerPort is the lowest port when the kernel leaves too few ports above firstPort.
	lowerPort = 10_000
	// enoughPorts is enough for all tests of a machine.
	enoughPorts = 2_000
	// usualPort is the first port for connections unless the kernel is configured otherwise.
	usualPort = 32_768
)

var (
	portLock sync.Mutex
	given    = map[int]bool{}
)

// Port returns a loopback port for a server that starts later, or starts there again and again. No process listens on
// the port, and this process has not returned it before. It is not one of the ports that the kernel uses for
// connections, if there are others: any connection of the machine can take one of those and keep it.
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

// connectionPorts returns the first port that the kernel uses for connections.
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

// spanBelow returns the range of ports for servers when connections use those from low up: from first to end - 1.
func spanBelow(low int) (first, end int) {
	switch {
	case low >= firstPort+enoughPorts:
		return firstPort, low
	case low >= lowerPort+enoughPorts:
		return lowerPort, low
	}
	return firstPort, usualPort // the kernel uses all ports for connections, and none is better than another
}
