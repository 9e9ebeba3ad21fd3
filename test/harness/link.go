package harness

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/skein-dev/skein/internal/scratch"
)

// Link is a TCP proxy on loopback whose network fails when it is told to: it cuts connections, refuses them, delays what they carry,
// or carries nothing for a while.
type Link struct {
	target   string
	listener net.Listener
	copies   sync.WaitGroup

	mu     sync.Mutex
	away   bool
	delay  time.Duration
	stalls chan struct{} // closed when it carries bytes again; nil while it does
	conns  map[net.Conn]struct{}
}

// NewLink starts a proxy for a server.
func NewLink(target string) (*Link, error) {
	port, err := scratch.Port()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
	if err != nil {
		return nil, err
	}
	k := &Link{target: target, listener: l, conns: map[net.Conn]struct{}{}}
	k.copies.Go(k.accept)
	return k, nil
}

// Address is where the proxy listens.
func (k *Link) Address() string { return k.listener.Addr().String() }

// Cut closes all connections. New ones succeed.
func (k *Link) Cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for c := range k.conns {
		_ = c.Close()
	}
}

// Leave closes all connections, and each new one at once, until Return.
func (k *Link) Leave() {
	k.mu.Lock()
	k.away = true
	k.mu.Unlock()
	k.Cut()
}

// Return ends Leave.
func (k *Link) Return() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.away = false
}

// Delay makes everything that is carried later by d, in each direction.
func (k *Link) Delay(d time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.delay = d
}

// Swallow carries nothing more, without an error, until Carry.
func (k *Link) Swallow() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stalls == nil {
		k.stalls = make(chan struct{})
	}
}

// Carry ends Swallow. What was sent meanwhile arrives now, as TCP repeats it, unless the connections were lost for good.
func (k *Link) Carry(lost bool) {
	if lost {
		k.Cut()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stalls != nil {
		close(k.stalls)
		k.stalls = nil
	}
}

// Close ends the proxy.
func (k *Link) Close() error {
	err := k.listener.Close()
	k.Leave()
	k.Carry(false)
	k.copies.Wait()
	return err
}

func (k *Link) accept() {
	for {
		c, err := k.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		k.copies.Go(func() { k.serve(c) })
	}
}

func (k *Link) serve(near net.Conn) {
	if !k.hold(near) {
		return
	}
	defer k.release(near)
	k.wait()
	far, err := net.Dial("tcp", k.target)
	if err != nil || !k.hold(far) {
		return
	}
	defer k.release(far)
	var both sync.WaitGroup
	both.Go(func() { k.copy(far, near) })
	both.Go(func() { k.copy(near, far) })
	both.Wait()
}

// hold notes a connection, or closes it when the server is away.
func (k *Link) hold(c net.Conn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.away {
		_ = c.Close()
		return false
	}
	k.conns[c] = struct{}{}
	return true
}

func (k *Link) release(c net.Conn) {
	_ = c.Close()
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.conns, c)
}

// wait returns when bytes may go on.
func (k *Link) wait() {
	k.mu.Lock()
	stalls, delay := k.stalls, k.delay
	k.mu.Unlock()
	if stalls != nil {
		<-stalls
	}
	if delay > 0 {
		time.Sleep(delay)
	}
}

func (k *Link) copy(to, from net.Conn) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			k.wait()
			if _, werr := to.Write(b[:n]); werr != nil {
				err = werr
			}
		}
		if err != nil {
			break
		}
	}
	// The end of what one side sends is passed on alone: the other side may have something to say yet.
	if c, ok := to.(*net.TCPConn); ok && c.CloseWrite() == nil {
		return
	}
	_ = to.Close()
}
