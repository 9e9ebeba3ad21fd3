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

// calledAtOnce are the hooks for something past that are not called through the inbox.
var calledAtOnce = map[string]string{"after_system_message": "Run.Announce calls it before the model is asked"}

// A hook that is queued and that queuedHooks does not name would be left for a newer release for ever, unless a run is under way.
func TestEachQueuedHookIsKnown(t *testing.T) {
	text, err := os.ReadFile("../../../api/v1alpha1/hook_types.go")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`(?m)^\tHookAfter\w+ +HookName = "(after_\w+)"`).FindAllStringSubmatch(string(text), -1)
	if len(names) < 7 {
		t.Fatalf("only %d hooks were found", len(names))
	}
	for _, m := range names {
		err := readable(store.InboxItem{Kind: store.InboxHook, Payload: []byte(`{"hook":"` + m[1] + `"}`)})
		if why := calledAtOnce[m[1]]; why == "" && err != nil {
			t.Errorf("%s is left for a newer release (%v): add it to queuedHooks, or to calledAtOnce with the reason", m[1], err)
		} else if why != "" && err == nil {
			t.Errorf("queuedHooks has %s, which is not queued: %s", m[1], why)
		}
	}
	if len(names) != len(queuedHooks)+len(calledAtOnce) {
		t.Errorf("queuedHooks has %d hooks and calledAtOnce %d, but the API has %d for something past", len(queuedHooks), len(calledAtOnce), len(names))
	}
}
