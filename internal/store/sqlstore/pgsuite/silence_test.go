package pgsuite

import (
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
)

// relay is a TCP proxy that can fall silent on the connections that it has, as when their server's node is gone.
type relay struct {
	net.Listener
	target string
	mu     sync.Mutex
	silent chan struct{} // of the connections that are accepted now; closed when they carry nothing more
}

// newRelay starts a proxy for the host and port of a URL, and returns the URL with its own.
func newRelay(url string) (*relay, string) {
	GinkgoHelper()
	config, err := pgx.ParseConfig(url)
	Expect(err).NotTo(HaveOccurred())
	target := net.JoinHostPort("127.0.0.1", strconv.Itoa(int(config.Port)))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	r := &relay{Listener: l, target: target, silent: make(chan struct{})}
	DeferCleanup(l.Close)
	go r.accept()
	return r, strings.Replace(url, target, l.Addr().String(), 1)
}

func (r *relay) accept() {
	for {
		near, err := r.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		silent := r.silent
		r.mu.Unlock()
		far, err := net.Dial("tcp", r.target)
		if err != nil {
			_ = near.Close()
			continue
		}
		carry := func(to, from net.Conn) {
			defer func() { _, _ = near.Close(), far.Close() }()
			b := make([]byte, 32<<10)
			for {
				n, err := from.Read(b)
				select {
				case <-silent:
					_, _ = io.Copy(io.Discard, from)
					return
				default:
				}
				if _, failed := to.Write(b[:n]); err != nil || failed != nil {
					return
				}
			}
		}
		go carry(far, near)
		go carry(near, far)
	}
}

// fallSilent carries nothing more on the connections that are open. New ones work.
func (r *relay) fallSilent() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.silent)
	r.silent = make(chan struct{})
}

var _ = Describe("A PostgreSQL that falls silent", Label("K8S-05"), func() {
	It("makes a read without a deadline fail as unavailable, and the next one use a new connection", func(ctx SpecContext) {
		defer func(d time.Duration) { sqldb.AnswerTimeout = d }(sqldb.AnswerTimeout)
		sqldb.AnswerTimeout = time.Second
		r, url := newRelay(newDatabase(ctx).url)
		s, err := sqlstore.OpenPostgres(ctx, sqlstore.PostgresOptions{URL: url, Readers: 1})
		Expect(err).NotTo(HaveOccurred())
		defer func() { Expect(s.Close()).To(Succeed()) }()
		patient, cancel := context.WithCancel(context.Background())
		defer cancel()
		runnable := func() error {
			_, err := s.Runnable(patient, 1)
			return err
		}
		inSnapshot := func() error {
			_, err := s.State(patient, "t", store.StateQuery{})
			return store.IgnoreNotFound(err)
		}
		for _, read := range []func() error{runnable, inSnapshot} {
			Expect(read()).To(Succeed())
			r.fallSilent()
			answered := make(chan error, 1)
			go func() { answered <- read() }()
			Eventually(ctx, answered).Should(Receive(MatchError(store.ErrUnavailable)))
			Expect(read()).To(Succeed())
		}
	})

	It("is noticed by the connection itself when it takes nothing for half a minute", func(ctx SpecContext) {
		config, err := pgx.ParseConfig(newDatabase(ctx).url)
		Expect(err).NotTo(HaveOccurred())
		sqldb.Configure(config)
		c, err := pgx.ConnectConfig(ctx, config)
		Expect(err).NotTo(HaveOccurred())
		defer func() { Expect(c.Close(ctx)).To(Succeed()) }()
		raw, err := c.PgConn().Conn().(*net.TCPConn).SyscallConn()
		Expect(err).NotTo(HaveOccurred())
		for option, value := range map[int]int{
			unix.TCP_USER_TIMEOUT: 30_000, unix.TCP_KEEPIDLE: 10, unix.TCP_KEEPINTVL: 5, unix.TCP_KEEPCNT: 3,
		} {
			var got int
			var failed error
			Expect(raw.Control(func(fd uintptr) { got, failed = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, option) })).To(Succeed())
			Expect(failed).NotTo(HaveOccurred())
			Expect(got).To(Equal(value), "option %d", option)
		}
	})
})
