package wire

import (
	"encoding/json"
	"testing"
)

// Servers differ in the types of what they send. No value makes the rest of an answer useless.
func TestValuesOfAnyTypeAreDecoded(t *testing.T) {
	type inner struct {
		Text Text `json:"text"`
		N    Int  `json:"n"`
	}
	type outer struct {
		Text   Text          `json:"text"`
		N      Int           `json:"n"`
		Object Object[inner] `json:"object"`
		List   List[inner]   `json:"list"`
	}
	for value, want := range map[string]struct {
		text    Text
		n       Int
		present bool
		items   int
	}{
		`null`:                           {},
		`"a\n"`:                          {text: "a\n"},
		`"12"`:                           {text: "12", n: 12},
		`12`:                             {text: "12", n: 12},
		`-1.75`:                          {text: "-1.75", n: -1},
		`9223372036854775807`:            {text: "9223372036854775807", n: 9223372036854775807},
		`true`:                           {text: "true", n: 1},
		`{}`:                             {text: "{}", present: true},
		`{"text":{"a":1},"n":[1]}`:       {text: `{"text":{"a":1},"n":[1]}`, present: true},
		`[]`:                             {text: "[]"},
		`[{"text":1,"n":"2"},null]`:      {text: `[{"text":1,"n":"2"},null]`, items: 2},
		`[{"text":"a"},17]`:              {text: `[{"text":"a"},17]`},
		`[{"text":"a"},{"text":["b"]}]`:  {text: `[{"text":"a"},{"text":["b"]}]`, items: 2},
		`"\ud800"`:                       {text: "\ufffd"},
		`100000000000000000000000000000`: {text: "100000000000000000000000000000", n: 9223372036854775807},
	} {
		var got outer
		if err := json.Unmarshal([]byte(`{"text":`+value+`,"n":`+value+`,"object":`+value+`,"list":`+value+`}`), &got); err != nil {
			t.Errorf("%s: %v", value, err)
		}
		if got.Text != want.text || got.N != want.n || got.Object.Present != want.present || len(got.List) != want.items {
			t.Errorf("%s becomes %+v", value, got)
		}
	}
}
