package app

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"
)

// sealed is threads that tell when they are asked to seal their variables anew.
type sealed chan struct{}

func (s sealed) ResealEnv(ctx context.Context) (done, left int, err error) {
	select {
	case s <- struct{}{}:
	case <-ctx.Done():
	}
	return 0, 0, nil
}

func TestResealerLooksWhenTheKeysHaveChanged(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	looks, now := make(sealed), clocktesting.NewFakeClock(time.Now())
	r := &resealer{threads: looks, keys: make(chan struct{}, 1), clock: now, log: logr.Discard()}
	for range 3 {
		r.keysChanged() // nobody looks yet, and it waits for nobody
	}
	done := make(chan error, 1)
	go func() { done <- r.Start(ctx) }()
	receive := func(why string) { g.Eventually(looks, "30s").Should(Receive(), why) }
	receive("at first")
	receive("for the keys, however often they changed")
	r.keysChanged()
	receive("at once, with the clock standing still")
	g.Eventually(func() bool {
		now.Step(resealEvery)
		select {
		case <-looks:
			return true
		default:
			return false
		}
	}, "30s").Should(BeTrue(), "every now and then")
	cancel()
	g.Eventually(done, "30s").Should(Receive(BeNil()))
}
