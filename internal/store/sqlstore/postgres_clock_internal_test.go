package sqlstore

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("The database's clock", func() {
	It("is not moved by an answer that comes late, as it may between any two leases", func() {
		c := &databaseClock{}
		now := time.Now()
		at := func(ahead time.Duration) time.Time { return now.Add(ahead) } // what the database's clock says now
		c.compared(at(time.Minute), now.Add(-time.Millisecond), now.Add(time.Millisecond))
		quick := c.ahead.Load()
		Expect(quick).To(BeEquivalentTo(time.Minute))
		c.compared(at(time.Minute), now.Add(-time.Millisecond), now.Add(10*time.Second))
		Expect(c.ahead.Load()).To(Equal(quick), "the answer took long")
		c.compared(at(time.Minute), now.Add(-10*time.Second), now)
		Expect(c.ahead.Load()).To(Equal(quick), "the question took long")
	})

	It("follows where an answer shows that it is wrong, and no further", func() {
		c := &databaseClock{}
		now := time.Now()
		c.compared(now, now.Add(-10*time.Second), now)
		Expect(c.ahead.Load()).To(BeEquivalentTo(5*time.Second), "as likely as any")
		c.compared(now, now, now.Add(time.Millisecond))
		Expect(c.ahead.Load()).To(BeEquivalentTo(0))
		c.compared(now.Add(-time.Hour), now, now.Add(time.Second)) // somebody has set it
		Expect(c.ahead.Load()).To(BeEquivalentTo(-time.Hour))
	})
})
