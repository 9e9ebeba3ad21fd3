package thread

import (
	"context"
	"errors"
	"testing"
)

// removals notes what was removed.
func removals() (p *pins, removed *[]string) {
	removed = &[]string{}
	return newPins(func(_ context.Context, digest string) error {
		*removed = append(*removed, digest)
		return nil
	}), removed
}

func TestPinnedContentsAreRemovedByTheLastHolder(t *testing.T) {
	p, removed := removals()
	one, two := p.pin("d"), p.pin("d")
	if err := p.collect(t.Context(), "d"); err != nil {
		t.Fatal(err)
	}
	one()
	one() // again is no other holder
	if len(*removed) != 0 {
		t.Fatal("removed while it was pinned")
	}
	two()
	if len(*removed) != 1 {
		t.Fatalf("removed %v, want it once", *removed)
	}
	if len(p.held) != 0 {
		t.Fatalf("%d entries are left over", len(p.held))
	}
}

func TestUnpinnedContentsStayUnlessAskedFor(t *testing.T) {
	p, removed := removals()
	p.pin("d")()
	if len(*removed) != 0 || len(p.held) != 0 {
		t.Fatalf("removed %v, %d entries left over", *removed, len(p.held))
	}
}

func TestPinWaitsForARemovalUnderWay(t *testing.T) {
	started, finish := make(chan struct{}), make(chan struct{})
	var p *pins
	done := false
	p = newPins(func(context.Context, string) error {
		close(started)
		<-finish
		done = true
		return nil
	})
	collected := make(chan error)
	go func() { collected <- p.collect(context.Background(), "d") }()
	<-started
	pinned := make(chan func())
	go func() { pinned <- p.pin("d") }()
	p.pin("other")() // is not held up
	select {
	case <-pinned:
		t.Fatal("pinned what is being removed")
	default:
	}
	close(finish)
	unpin := <-pinned
	if !done {
		t.Fatal("pinned before the removal had ended")
	}
	unpin()
	if err := <-collected; err != nil {
		t.Fatal(err)
	}
}

func TestRemovalAskedForDuringARemovalLooksAgain(t *testing.T) {
	times := 0
	var p *pins
	p = newPins(func(ctx context.Context, digest string) error {
		if times++; times == 1 { // a row was there when it was looked at; now its owner has gone too
			return p.collect(ctx, digest)
		}
		return nil
	})
	if err := p.collect(t.Context(), "d"); err != nil {
		t.Fatal(err)
	}
	if times != 2 {
		t.Fatalf("looked %d times, want 2", times)
	}
}

func TestFailedRemovalLeavesNothingHeld(t *testing.T) {
	outage := errors.New("outage")
	p := newPins(func(context.Context, string) error { return outage })
	if err := p.collect(t.Context(), "d"); !errors.Is(err, outage) {
		t.Fatalf("got %v", err)
	}
	if len(p.held) != 0 {
		t.Fatal("the digest is still held")
	}
}
