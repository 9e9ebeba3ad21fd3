package lenient_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/skein-dev/skein/api/lenient"
)

type inline struct {
	Inlined int32 `json:"inlined,omitempty"`
}

type part struct {
	Name string           `json:"name"`
	Wait *metav1.Duration `json:"wait,omitempty"`
}

type object struct {
	metav1.TypeMeta `json:",inline"`
	inline          `json:",inline"`
	Text            string                       `json:"text,omitempty"`
	Count           *int32                       `json:"count,omitempty"`
	Flag            bool                         `json:"flag,omitempty"`
	Parts           []part                       `json:"parts,omitempty"`
	Limits          map[string]resource.Quantity `json:"limits,omitempty"`
	Amount          *resource.Quantity           `json:"amount,omitempty"`
	Hidden          string                       `json:"-"`
}

func decode(t *testing.T, text string) (object, lenient.Problem) {
	t.Helper()
	o := object{Text: "left over", Hidden: "left over"}
	problem, err := lenient.Unmarshal([]byte(text), &o)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return o, problem
}

func TestAnObjectThatCanBeDecodedHasNoProblem(t *testing.T) {
	g := NewWithT(t)
	o, problem := decode(t, `{"kind":"X","inlined":1,"text":"a","count":2,"parts":[{"name":"p","wait":"5s"}],"limits":{"cpu":"1"},"unknown":true}`)
	g.Expect(problem).To(BeNil())
	g.Expect(problem.String()).To(BeEmpty())
	g.Expect(o.Text).To(Equal("a"))
	g.Expect(o.Kind).To(Equal("X"))
	g.Expect(o.Parts[0].Wait.Duration).To(Equal(5 * time.Second))
}

func TestAFieldThatCannotBeDecodedLeavesTheOthers(t *testing.T) {
	g := NewWithT(t)
	o, problem := decode(t, `{"kind":"X","inlined":7,"text":"kept","count":3000000000,"flag":"yes","parts":[{"name":"a","wait":"10 seconds"},{"name":"b","wait":"1m"}],
		"limits":{"cpu":"1","memory":"lots"},"amount":{"no":1}}`)
	g.Expect(o.Kind).To(Equal("X"))
	g.Expect(o.Text).To(Equal("kept"))
	g.Expect(o.Hidden).To(BeEmpty(), "what the first attempt was given is gone")
	g.Expect(o.Count).To(BeNil())
	g.Expect(o.Parts).To(HaveLen(2))
	g.Expect(o.Parts[0].Name).To(Equal("a"))
	g.Expect(o.Parts[0].Wait).To(BeNil())
	g.Expect(o.Parts[1].Wait.Duration).To(Equal(time.Minute))
	g.Expect(o.Limits).To(HaveLen(1))
	g.Expect(problem).To(ConsistOf(
		"count: use a whole number from -2147483648 to 2147483647",
		"flag: use true or false",
		"parts[0].wait: use a duration such as 10s, 5m or 1h30m",
		"limits.memory: use a quantity such as 500Mi, 2 or 0.5",
		"amount: use a quantity such as 500Mi, 2 or 0.5",
	))
}

func TestContainersOfAnotherKindAreNamed(t *testing.T) {
	g := NewWithT(t)
	o, problem := decode(t, `{"text":7,"parts":{"a":1},"limits":["x"],"inlined":1.5}`)
	g.Expect(o.Parts).To(BeNil())
	g.Expect(problem).To(ConsistOf("text: use a string; put quotes around it", "parts: use a list", "limits: use an object",
		"inlined: use a whole number from -2147483648 to 2147483647"))
}

func TestAProblemIsBounded(t *testing.T) {
	g := NewWithT(t)
	text := `{"parts":[` + strings.Repeat(`{"wait":"x"},`, 20) + `{"wait":"x"}]}`
	_, problem := decode(t, text)
	g.Expect(problem).To(HaveLen(21))
	g.Expect(problem.String()).To(HaveSuffix("; and 16 more"))
	g.Expect(problem).To(HaveLen(21), "the string is made of a copy")
}

// A quantity with a long exponent takes hours to decode, and would hold up the list that it is in.
func TestALongExponentIsNotDecoded(t *testing.T) {
	g := NewWithT(t)
	for _, amount := range []string{`"1e-999999999"`, `"1E+1000000"`, `".5e-99999"`} {
		o, problem := decode(t, `{"text":"a1e-99999","limits":{"cpu":`+amount+`,"memory":"1"},"amount":`+amount+`}`)
		g.Expect(o.Text).To(Equal("a1e-99999"), "a text that looks like one is a text")
		g.Expect(o.Limits).To(HaveLen(1))
		g.Expect(problem).To(ConsistOf("limits.cpu: use a quantity such as 500Mi, 2 or 0.5", "amount: use a quantity such as 500Mi, 2 or 0.5"))
	}
	o, problem := decode(t, `{"text":"d41d8cd98f00b204e9800998ecf8427e1234","amount":"1e3"}`)
	g.Expect(problem).To(BeNil())
	g.Expect(o.Amount.Value()).To(Equal(int64(1000)))
}

func TestWhatIsNoObjectFails(t *testing.T) {
	g := NewWithT(t)
	for _, text := range []string{`[]`, `"x"`, `{"a":`, ``} {
		_, err := lenient.Unmarshal([]byte(text), &object{})
		g.Expect(err).To(HaveOccurred(), text)
	}
	_, err := lenient.Unmarshal([]byte(`{"a":1}`), &[]string{})
	g.Expect(err).To(MatchError(ContainSubstring("pointer to a struct")))
}

func FuzzUnmarshal(f *testing.F) {
	f.Add(`{"text":"a","count":1e40,"parts":[{"wait":null}],"limits":{"a":"1e-9"}}`)
	f.Fuzz(func(t *testing.T, text string) {
		var strict, o object
		problem, err := lenient.Unmarshal([]byte(text), &o)
		if strictErr := json.Unmarshal([]byte(text), &map[string]json.RawMessage{}); strictErr != nil && err == nil && text != "null" {
			t.Fatalf("%q is no object, and was decoded", text)
		}
		if err == nil && problem == nil {
			// encoding/json would also take a field whose name differs in case.
			if strictErr := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &strict); strictErr != nil && !strings.Contains(strings.ToLower(text), "e") {
				t.Fatalf("%q cannot be decoded (%v), and no problem was named", text, strictErr)
			}
		}
	})
}
