package call

import (
	"io"
	"net/http/httptest"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("A body that comes slowly", Label("K8S-12"), func() {
	var now time.Time
	read := func(pause time.Duration, piece int) (n int64, err error) {
		c := &Call{Response: httptest.NewRecorder(), Request: httptest.NewRequest("PUT", "/", strings.NewReader(strings.Repeat("x", 256<<10)))}
		in := c.PatientBody(time.Hour)
		now = time.Now()
		in.now = func() time.Time { now = now.Add(pause); return now }
		for {
			k, err := in.Read(make([]byte, piece))
			n += int64(k)
			if err != nil {
				return n, err
			}
		}
	}

	It("is cut off after half a minute", func() {
		n, err := read(time.Second, 100)
		Expect(err).To(MatchError("the body came more slowly than 1024 bytes a second"))
		Expect(n).To(BeNumerically("~", 3_300, 200))
	})

	It("is read to its end at a kibibyte a second", func() {
		n, err := read(time.Second, 1024)
		Expect(err).To(MatchError(io.EOF))
		Expect(n).To(BeEquivalentTo(256 << 10))
	})
})
