package code

import (
	"os"
	"reflect"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("The message that code writes", Label("MSG-04"), func() {
	It("has the fields that the types of TypeScript have", func() {
		types, err := os.ReadFile("../../sandbox/types/builder.d.ts")
		Expect(err).NotTo(HaveOccurred())
		body := regexp.MustCompile(`(?s)export interface MessageInput \{(.*?)\n  \}`).FindSubmatch(types)
		Expect(body).NotTo(BeNil())
		var declared, taken []string
		for _, m := range regexp.MustCompile(`(?m)^\s*(\w+)\??:`).FindAllSubmatch(body[1], -1) {
			declared = append(declared, string(m[1]))
		}
		of := reflect.TypeFor[messageInput]()
		for i := range of.NumField() {
			field, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			taken = append(taken, field)
		}
		Expect(taken).To(ConsistOf(declared))
	})

	It("says which field is wrong, in the words of JSON", func() {
		var in messageInput
		c := &stateCall{method: "queueMessage", args: []any{map[string]any{"role": "user", "content": 5.0}}}
		Expect(c.into(0, "the message", &in)).To(MatchError("TypeError: state.queueMessage: argument 1 must be the message: content: give a string, not a JSON number"))
	})
})
