package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/skein-dev/skein/internal/store"
)

// BenchmarkFirings measures how firings that are due are found and claimed, in stores that open returns.
func BenchmarkFirings(b *testing.B, open func() (store.Store, error)) {
	for _, namespaces := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprintf("find/namespaces=%d", namespaces), func(b *testing.B) {
			s := firingsIn(b, open, namespaces, 5)
			from := ""
			find := func() int {
				found, err := s.DueFirings(b.Context(), from, 64)
				if err != nil {
					b.Fatal(err)
				}
				from = found.From
				return len(found.Due)
			}
			for find() < min(namespaces, 100) { // the clock of a database is read again now and then
			}
			for b.Loop() {
				find()
			}
		})
	}
	for _, waiting := range []int{1000, 10_000} {
		for _, running := range []int{1, 50} {
			b.Run(fmt.Sprintf("claim/waiting=%d/running=%d", waiting, running), func(b *testing.B) {
				claimOne(b, firingsIn(b, open, 1, waiting), running)
			})
		}
	}
}

// claimOne claims a firing while others run here, and gives it up, so that it waits again behind the others.
func claimOne(b *testing.B, s store.Store, running int) {
	b.Helper()
	claim := func(n int, running ...store.FiringKey) []store.Firing {
		claimed, err := s.ClaimFirings(b.Context(), "a", time.Hour, map[string]int{"n-0": n}, running...)
		if err != nil || len(claimed) != n {
			b.Fatal(len(claimed), err)
		}
		return claimed
	}
	var keys []store.FiringKey
	for _, f := range claim(running) {
		keys = append(keys, f.Key())
	}
	for b.Loop() {
		f := claim(1, keys...)[0]
		if err := s.FinishFiring(b.Context(), store.FiringEnd{Key: f.Key(), Epoch: f.Epoch, Status: store.FiringPending}); err != nil {
			b.Fatal(err)
		}
	}
}

// firingsIn returns a store in which each of some namespaces has an effect with so many firings that are due.
func firingsIn(b *testing.B, open func() (store.Store, error), namespaces, each int) store.Store {
	b.Helper()
	s, err := open()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	for i := range namespaces {
		name := fmt.Sprint("n-", i)
		d := store.DueRecord{Schedule: store.EffectSchedule{EffectID: name, Namespace: name}}
		for due := range int64(each) {
			d.Firings = append(d.Firings, store.Firing{EffectID: name, Due: due, Namespace: name, Name: "e", Effect: "e"})
		}
		if err := s.RecordDue(b.Context(), d); err != nil {
			b.Fatal(err)
		}
	}
	return s
}
