package compat

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/skein-dev/skein/internal/store"
)

// A kind of inbox item that readable does not name would be left for a newer release for ever.
func TestEachKindOfInboxItemIsKnown(t *testing.T) {
	text, err := os.ReadFile("../../store/inbox.go")
	if err != nil {
		t.Fatal(err)
	}
	kinds := regexp.MustCompile(`(?m)^\tInbox\w+ +InboxKind = "(\w+)"`).FindAllStringSubmatch(string(text), -1)
	if len(kinds) < 9 {
		t.Fatalf("only %d kinds were found", len(kinds))
	}
	for _, k := range kinds {
		err := readable(store.InboxItem{Kind: store.InboxKind(k[1]), Payload: []byte("{}")})
		if err != nil && strings.Contains(err.Error(), "unknown kind") {
			t.Errorf("readable does not know the kind %q", k[1])
		}
	}
}
