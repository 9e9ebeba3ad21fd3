package wire

import (
	"context"
	"net/http"
	"testing"

	"github.com/skein-dev/skein/internal/model"
)

// These texts are what providers and model servers say about a request that is too long, from documentation and
// reports.
func TestTooLong(t *testing.T) {
	for said, want := range map[string][2]int64{
		"prompt is too long: 208310 tokens > 200000 maximum": {200000, 208310},
		"This model's maximum context length is 16385 tokens. However, your messages resulted in 31228 tokens. Please reduce the length of the messages.": {16385, 31228},
		"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4000 in the messages, 1000 in the completion).":          {4096, 4000},
		"input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length or `max_tokens` and try again":                {200000, 188240},
		"request (13842 tokens) exceeds the available context size (4096 tokens), try increasing it":                                                      {4096, 13842},
		"The input token count (1250000) exceeds the maximum number of tokens allowed (1048576).":                                                         {1048576, 1250000},
		"Your input exceeds the context window of this model. Please adjust your input and try again.":                                                    {0, 0},
		"Input is too long for requested model.": {0, 0},
	} {
		e := (&Endpoint{}).Explain(context.Background(), Failure{Response: &http.Response{StatusCode: 400}, Said: said})
		if e.Code != model.CodeContextLength || e.Limit != want[0] || e.Counted != want[1] {
			t.Errorf("%s: %q, %d of %d", said, e.Code, e.Counted, e.Limit)
		}
	}
	if e := (&Endpoint{}).Explain(context.Background(), Failure{Response: &http.Response{StatusCode: 413}, Said: "413"}); e.Code != model.CodeContextLength {
		t.Errorf("413 is %q", e.Code)
	}
	// Servers also say this about a single field that is too long, which a shorter conversation does not cure.
	if e := (&Endpoint{}).Explain(context.Background(), Failure{Response: &http.Response{StatusCode: 400}, Code: "string_above_max_length",
		Said: "Invalid 'tools[0].function.description': string too long. Expected a string with maximum length 1024, but got a string with length 2000 instead."}); e.Code != "" {
		t.Errorf("a long description is %q", e.Code)
	}
	if e := (&Endpoint{}).Explain(context.Background(), Failure{Response: &http.Response{StatusCode: 429}, Code: "rate_limit_exceeded", Said: "reduce the length"}); e.Code != "" {
		t.Errorf("429 is %q", e.Code)
	}
}
