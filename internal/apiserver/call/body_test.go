package call

import (
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

var _ = Describe("A body of the wrong type", func() {
	DescribeTable("is refused in words of JSON", func(body, want string) {
		var into struct {
			Index    int64            `json:"index"`
			Text     string           `json:"text"`
			Flag     bool             `json:"flag"`
			Share    float64          `json:"share"`
			List     []string         `json:"list"`
			Object   map[string]any   `json:"object"`
			Anything *json.RawMessage `json:"anything"`
		}
		err := DecodeStrict("orders", []byte(body), &into)
		Expect(err).To(MatchError(ContainSubstring(want)))
		Expect(apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)).To(BeTrue())
		Expect(err.Error()).NotTo(MatchRegexp(`Go |int64|float64|struct|interface|v1alpha1`))
	},
		Entry(nil, `[]`, "the body has the wrong type: give an object, not a JSON array"),
		Entry(nil, `"x"`, "give an object, not a JSON string"),
		Entry(nil, `{"index":"a"}`, "index: give a whole number of at most 64 bits, not a JSON string"),
		Entry(nil, `{"index":1.5}`, "not a JSON number 1.5"),
		Entry(nil, `{"text":{}}`, "text: give a string, not a JSON object"),
		Entry(nil, `{"flag":"yes"}`, "flag: give true or false, not a JSON string"),
		Entry(nil, `{"share":true}`, "share: give a number, not a JSON bool"),
		Entry(nil, `{"list":{}}`, "list: give an array, not a JSON object"),
		Entry(nil, `{"object":[]}`, "object: give an object, not a JSON array"),
		Entry(nil, `{`, "the body is not valid JSON for this request"),
	)
})
