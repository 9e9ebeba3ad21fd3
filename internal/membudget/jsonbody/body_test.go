package jsonbody_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/membudget/jsonbody"
)

func TestBody(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "JSON that is read within a memory budget")
}

var _ = Describe("An answer that is read", Label("K8S-12"), func() {
	var budget *membudget.Budget
	var account *membudget.Account
	BeforeEach(func() {
		budget = membudget.New(2<<20, time.Millisecond)
		account = budget.Open("ns")
	})
	body := func(ctx SpecContext, r io.Reader) *jsonbody.Body {
		return &jsonbody.Body{ReadCloser: io.NopCloser(r), Context: ctx, Account: account}
	}

	It("is drawn with what it becomes when it is decoded", func(ctx SpecContext) {
		text := "[" + strings.Repeat("{},", 1000) + "{}]"
		got, err := io.ReadAll(body(ctx, iotest.OneByteReader(strings.NewReader(text))))
		Expect(err).NotTo(HaveOccurred())
		Expect(string(got)).To(Equal(text))
		Expect(account.Drawn()).To(BeNumerically(">", 300_000))
		account.Close()
		Expect(budget.Used()).To(BeZero())
	})

	It("is drawn event by event", func(ctx SpecContext) {
		event := `data: {"text": "` + strings.Repeat("{x", 5<<10) + `"}` + "\r\n\r\n"
		in := body(ctx, iotest.HalfReader(strings.NewReader(strings.Repeat(event, 1000))))
		in.Events = true
		_, err := io.Copy(io.Discard, in)
		Expect(err).NotTo(HaveOccurred(), "10 MiB of events, of a memory with 2 MiB")
		Expect(account.Drawn()).To(And(BeNumerically(">", len(event)), BeNumerically("<", 3*len(event))), "the last one may not be used yet")
	})

	It("stays drawn as far as it is kept", func(ctx SpecContext) {
		event := `data: {"text": "` + strings.Repeat("x", 1<<10) + `"}` + "\n\n"
		in := body(ctx, strings.NewReader(strings.Repeat(event, 100)))
		in.Events, in.Keep = true, true
		_, err := io.Copy(io.Discard, in)
		Expect(err).NotTo(HaveOccurred())
		Expect(account.Drawn()).To(And(BeNumerically(">", 100*len(event)), BeNumerically("<", 103*len(event))))
	})

	It("ends with the error of the draw when there is no memory, and says so once", func(ctx SpecContext) {
		waits, told := 0, []error(nil)
		in := body(ctx, strings.NewReader(strings.Repeat("x", 2<<20)))
		in.OnWait, in.OnRefused = func() { waits++ }, func(err error) { told = append(told, err) }
		_, err := io.ReadAll(in)
		var busy *membudget.BusyError
		Expect(errors.As(err, &busy)).To(BeTrue(), "%v", err)
		_, again := in.Read(make([]byte, 1))
		Expect(again).To(Equal(err), "also where the rest is dropped")
		Expect(waits).To(Equal(1))
		Expect(told).To(Equal([]error{err}))
		account.Close()
		Expect(budget.Used()).To(BeZero())
	})

	It("is read to its end without memory when the work that it was for has ended", func(ctx SpecContext) {
		account.Close()
		closed := false
		in := body(ctx, strings.NewReader(strings.Repeat("x", 2<<20)))
		in.OnClose = func() { closed = true }
		Expect(io.Copy(io.Discard, in)).To(BeEquivalentTo(2 << 20))
		Expect(in.Close()).To(Succeed())
		Expect(closed).To(BeTrue())
		Expect(budget.Used()).To(BeZero())
	})
})
