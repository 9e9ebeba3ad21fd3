package leader_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/skein-dev/skein/internal/leader"
)

func TestLeader(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Leader")
}

// folder creates a data folder and returns its lock file.
func folder() string {
	GinkgoHelper()
	file := filepath.Join(GinkgoT().TempDir(), "lock")
	Expect(os.WriteFile(file, nil, 0o600)).To(Succeed())
	return file
}

// resource appears in the errors of a lease.
var resource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// lease is the lock object of the election.
type lease struct {
	mu      sync.Mutex
	record  *resourcelock.LeaderElectionRecord
	version int
	holders []string // in order
}

// stand is the view that one process has of the lease. Its updates are conditional, as those of resourcelock.LeaseLock
// are.
type stand struct {
	*lease
	name   string
	read   int
	before func() // called before an update
}

func (s *stand) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.record == nil {
		return nil, nil, apierrors.NewNotFound(resource, "lease")
	}
	s.read = s.version
	raw, err := json.Marshal(s.record)
	found := *s.record
	return &found, raw, err
}

func (s *stand) Create(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.record != nil {
		return apierrors.NewAlreadyExists(resource, "lease")
	}
	s.put(r)
	s.read = s.version
	return nil
}

func (s *stand) Update(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	if s.before != nil {
		s.before()
		s.before = nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.read != s.version {
		return apierrors.NewConflict(resource, "lease", errors.New("changed"))
	}
	s.put(r)
	s.read = s.version
	return nil
}

func (l *lease) put(r resourcelock.LeaderElectionRecord) {
	l.record = &r
	l.version++
	if n := len(l.holders); n == 0 || l.holders[n-1] != r.HolderIdentity {
		l.holders = append(l.holders, r.HolderIdentity)
	}
}

func (l *lease) now() (resourcelock.LeaderElectionRecord, []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *l.record, append([]string{}, l.holders...)
}

func (s *stand) RecordEvent(string) {}
func (s *stand) Identity() string   { return s.name }
func (s *stand) Describe() string   { return "the lease" }

// elect stands for election until the spec ends. The channel is closed when it leads.
func elect(l resourcelock.Interface) <-chan struct{} {
	GinkgoHelper()
	leads := make(chan struct{})
	e, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: l, LeaseDuration: time.Hour, RenewDeadline: 30 * time.Minute, RetryPeriod: 20 * time.Millisecond,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { close(leads) }, OnStoppedLeading: func() {}},
	})
	Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() { e.Run(ctx); close(over) }()
	DeferCleanup(func() { cancel(); <-over })
	return leads
}

// held is a lease that a process took and holds for an hour.
func held(by string) *lease {
	l := &lease{}
	now := metav1.Now()
	l.put(resourcelock.LeaderElectionRecord{HolderIdentity: by, LeaseDurationSeconds: 3600, AcquireTime: now, RenewTime: now, LeaderTransitions: 3})
	return l
}

var _ = Describe("The record of a data folder", func() {
	It("names the earlier processes", func() {
		lock := folder()
		Expect(leader.Register(lock, "a")).To(BeEmpty())
		Expect(leader.Register(lock, "b")).To(Equal([]string{"a"}))
		// b was killed before it led: a may still hold the lease.
		Expect(leader.Register(lock, "c")).To(Equal([]string{"a", "b"}))
	})

	It("stays short", func() {
		lock := folder()
		for range 100 {
			Expect(leader.Register(lock, "a")).Error().NotTo(HaveOccurred())
		}
		Expect(leader.Register(lock, "b")).To(HaveLen(16))
	})

	It("names no earlier processes in a copy of the folder", func() {
		lock := folder()
		Expect(leader.Register(lock, "a")).To(BeEmpty())
		copied := filepath.Join(GinkgoT().TempDir(), "copy")
		Expect(exec.Command("cp", "-a", filepath.Dir(lock), copied).Run()).To(Succeed())
		there := filepath.Join(copied, "lock")
		Expect(leader.Register(there, "b")).To(BeEmpty())
		Expect(leader.Register(there, "c")).To(Equal([]string{"b"}), "from then on it is a separate folder")
		Expect(leader.Register(lock, "d")).To(Equal([]string{"a"}))
	})

	It("names no earlier processes after a restart of the machine", func() {
		lock := folder()
		Expect(leader.Register(lock, "a")).To(BeEmpty())
		leader.Boot(GinkgoT(), "another start")
		Expect(leader.Register(lock, "b")).To(BeEmpty())
	})

	It("is created again when it is damaged", func() {
		lock := folder()
		Expect(os.WriteFile(filepath.Join(filepath.Dir(lock), "leader.json"), []byte(`{"processes": ["a`), 0o600)).To(Succeed())
		former, err := leader.Register(lock, "b")
		Expect(former).To(BeEmpty())
		Expect(err).To(MatchError(ContainSubstring("leader.json")))
		Expect(leader.Register(lock, "c")).To(Equal([]string{"b"}))
	})

	It("is not written without a lock file", func() {
		lock := filepath.Join(GinkgoT().TempDir(), "lock")
		Expect(leader.Register(lock, "a")).Error().To(HaveOccurred())
		Expect(filepath.Join(filepath.Dir(lock), "leader.json")).NotTo(BeAnExistingFile())
	})
})

var _ = Describe("An election", func() {
	It("is won at once when the earlier process is gone", func() {
		l := held("a")
		Eventually(elect(leader.FreeOf([]string{"z", "a"}, &stand{lease: l, name: "b"}))).Should(BeClosed())
		record, holders := l.now()
		Expect(record.LeaderTransitions).To(Equal(4))
		Expect(holders).To(Equal([]string{"a", "b"}), "it was never free")
	})

	It("waits while another process leads", func() {
		l := held("a")
		b := &stand{lease: l, name: "b"}
		leads := elect(leader.FreeOf([]string{"z"}, b))
		// It has checked more than once.
		looked := func() int {
			l.mu.Lock()
			defer l.mu.Unlock()
			return b.read
		}
		Eventually(looked).Should(Equal(1))
		l.mu.Lock()
		l.version++ // as when the leader renews
		l.mu.Unlock()
		Eventually(looked).Should(Equal(2))
		Expect(leads).NotTo(BeClosed())
		_, holders := l.now()
		Expect(holders).To(Equal([]string{"a"}))
	})

	It("is lost to a process that took the lease first", func() {
		l := held("a")
		b := &stand{lease: l, name: "b"}
		overtaken := make(chan struct{})
		b.before = func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			r := *l.record
			r.HolderIdentity = "c"
			l.put(r)
			close(overtaken)
		}
		leads := elect(leader.FreeOf([]string{"a"}, b))
		Eventually(overtaken).Should(BeClosed())
		Eventually(func() int {
			l.mu.Lock()
			defer l.mu.Unlock()
			return b.read
		}).Should(Equal(2), "it has seen who has it")
		Expect(leads).NotTo(BeClosed())
		_, holders := l.now()
		Expect(holders).To(Equal([]string{"a", "c"}))
	})
})
