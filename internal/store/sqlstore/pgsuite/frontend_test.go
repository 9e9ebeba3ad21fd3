package pgsuite

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// frontend is a way to the server that counts what the connections send that have begun a transaction.
type frontend struct {
	url string

	mu    sync.Mutex
	conns []*sent
}

// sent is what was sent.
type sent struct {
	statements, trips int
	transactions      bool // there was one
}

// through returns a frontend of a database.
func through(d database) *frontend {
	GinkgoHelper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(l.Close)
	to := fmt.Sprintf("127.0.0.1:%d", server.Port())
	f := &frontend{url: strings.Replace(d.url, to, l.Addr().String(), 1)}
	Expect(f.url).NotTo(Equal(d.url))
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go f.serve(client, to)
		}
	}()
	return f
}

func (f *frontend) serve(client net.Conn, to string) {
	defer client.Close()
	backend, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer backend.Close()
	go func() {
		defer client.Close()
		_, _ = io.Copy(client, backend)
	}()
	s := &sent{}
	f.mu.Lock()
	f.conns = append(f.conns, s)
	f.mu.Unlock()
	for kind := 0; f.pass(client, backend, s, kind); kind = 1 { // the first message has no type
	}
}

// pass passes a message on, which begins with its type, of so many bytes, and its length.
func (f *frontend) pass(client io.Reader, backend io.Writer, s *sent, kind int) bool {
	head := make([]byte, kind+4)
	if _, err := io.ReadFull(client, head); err != nil {
		return false
	}
	message := append(head, make([]byte, binary.BigEndian.Uint32(head[kind:])-4)...)
	if _, err := io.ReadFull(client, message[kind+4:]); err != nil {
		return false
	}
	f.mu.Lock()
	if kind > 0 {
		s.count(message[0], message[kind+4:])
	}
	f.mu.Unlock()
	_, err := backend.Write(message)
	return err == nil
}

func (s *sent) count(kind byte, body []byte) {
	switch kind {
	case 'E': // Execute
		s.statements++
	case 'S': // Sync
		s.trips++
	case 'P': // Parse
		s.transactions = s.transactions || bytes.Contains(body, []byte("BEGIN"))
	}
}

// during returns what is sent while fn runs.
func (f *frontend) during(fn func()) (statements, trips int) {
	total := func(sign int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, s := range f.conns {
			if s.transactions {
				statements, trips = statements+sign*s.statements, trips+sign*s.trips
			}
		}
	}
	total(-1)
	fn()
	total(1)
	return statements, trips
}
