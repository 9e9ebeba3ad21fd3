package doctest

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread/jsonl"
)

// The TypeScript types of the API name each field that code gets to see of a message.
func TestTypesNameEachFieldOfAMessage(t *testing.T) {
	raw, err := os.ReadFile("../../internal/sandbox/types/builder.d.ts")
	if err != nil {
		t.Fatal(err)
	}
	for name, of := range map[string]reflect.Type{
		"Message": reflect.TypeFor[store.Message](), "ToolCall": reflect.TypeFor[store.ToolCall](), "Attachment": reflect.TypeFor[store.Attachment](),
		"Usage": reflect.TypeFor[model.Usage](),
	} {
		body := regexp.MustCompile(`(?s)export interface ` + name + ` \{(.*?)\n  \}`).FindSubmatch(raw)
		if body == nil {
			t.Errorf("builder.d.ts has no interface %s", name)
			continue
		}
		for i := range of.NumField() {
			field, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			if field != "-" && !regexp.MustCompile(`(?m)^\s*`+field+`\??:`).Match(body[1]) {
				t.Errorf("the interface %s of builder.d.ts lacks %s, which the record %s has", name, field, of)
			}
		}
	}
}

// The page on exports names each field of the lines that have messages.
func TestGuideNamesEachFieldOfAnExportedMessage(t *testing.T) {
	_, row, _ := strings.Cut(read(t, root, "docs/export.md"), "\n| `message` |")
	row, _, _ = strings.Cut(row, "\n")
	of := reflect.TypeFor[jsonl.Message]()
	for i := range of.NumField() {
		field, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		if field != "type" && !strings.Contains(row, "`"+field+"`") {
			t.Errorf("the row of docs/export.md for messages does not name %s", field)
		}
	}
}
