package harness

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// echoing starts a server that sends back what it gets, and a proxy before it.
func echoing(t *testing.T) *Link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	k, err := NewLink(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return k
}

func dialled(t *testing.T, k *Link) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", k.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// exchange sends a byte and waits for it.
func exchange(t *testing.T, c net.Conn) error {
	t.Helper()
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}

func TestLinkCarriesUntilItIsCut(t *testing.T) {
	k := echoing(t)
	c := dialled(t, k)
	if err := exchange(t, c); err != nil {
		t.Fatal(err)
	}
	k.Cut()
	if err := exchange(t, c); err == nil {
		t.Error("the connection was not cut")
	}
	if err := exchange(t, dialled(t, k)); err != nil {
		t.Errorf("a new connection: %v", err)
	}
}

func TestLinkThatLeftRefusesUntilItReturns(t *testing.T) {
	k := echoing(t)
	k.Leave()
	if err := exchange(t, dialled(t, k)); err == nil {
		t.Error("a connection to a server that is away was carried")
	}
	k.Return()
	if err := exchange(t, dialled(t, k)); err != nil {
		t.Error(err)
	}
}

func TestLinkThatSwallowsCarriesLaterOrNever(t *testing.T) {
	for _, lost := range []bool{false, true} {
		k := echoing(t)
		c := dialled(t, k)
		if err := exchange(t, c); err != nil {
			t.Fatal(err)
		}
		k.Swallow()
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("something was carried: %v", err)
		}
		if err := c.SetReadDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		k.Carry(lost)
		if _, err := c.Read(make([]byte, 1)); (err != nil) != lost {
			t.Errorf("lost %t: %v", lost, err)
		}
	}
}

func TestLinkDelays(t *testing.T) {
	k := echoing(t)
	c := dialled(t, k)
	const delay = 20 * time.Millisecond
	k.Delay(delay)
	began := time.Now()
	if err := exchange(t, c); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 2*delay {
		t.Errorf("there and back took %s", took)
	}
}
