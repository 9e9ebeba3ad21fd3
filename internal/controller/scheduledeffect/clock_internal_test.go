package scheduledeffect

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestClockWatch(t *testing.T) {
	g := NewWithT(t)
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	w := clockWatch{from: noon}
	at := func(clock, passed time.Duration) bool { return w.hasJumped(noon.Add(clock), passed) }
	g.Expect(at(time.Second, time.Second)).To(BeFalse())
	g.Expect(at(2*time.Second+tolerance, 2*time.Second)).To(BeFalse())
	g.Expect(at(2*time.Second+tolerance+1, 2*time.Second)).To(BeTrue())
	g.Expect(at(time.Hour, 3*time.Second)).To(BeTrue())
	g.Expect(at(-time.Hour, 4*time.Second)).To(BeFalse(), "set back")
	g.Expect(at(-time.Hour+time.Second, 5*time.Second)).To(BeFalse())
	g.Expect(at(6*time.Second, 6*time.Second)).To(BeTrue(), "set forward to what it was")
}
