package apiserver

import (
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("PATCH of a thread", Label("THR-14"), func() {
	DescribeTable("says what to give in the place of a wrong type", func(patch, want string) {
		e := newEnv()
		e.thread("hello")
		res, body := e.do(http.MethodPatch, at("hello", ""), strings.NewReader(patch))
		Expect(res.StatusCode).To(BeElementOf(http.StatusUnprocessableEntity, http.StatusBadRequest))
		Expect(body).To(And(ContainSubstring(want), Not(ContainSubstring("Go value")), Not(ContainSubstring("struct"))))
	},
		Entry(nil, `{"archived":"x"}`, "archived: give true or false, not a JSON string"),
		Entry(nil, `{"maxTokens":"1"}`, "maxTokens: give a whole number of at most 64 bits, not a JSON string"),
		Entry(nil, `{"workspace":[]}`, "workspace: give an object, not a JSON array"),
		Entry(nil, `{"workspace":{"tags":"a"}}`, "workspace.tags: give an array, not a JSON string"),
		Entry(nil, `[]`, "give an object, not a JSON array"),
	)
})
