package hooks

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// constants returns the hooks of the API by the names of their constants.
func constants(t *testing.T) map[string]skeinv1.HookName {
	t.Helper()
	found := map[string]skeinv1.HookName{}
	for _, m := range regexp.MustCompile(`(?m)^\t(Hook\w+) +HookName = "(\w+)"`).FindAllStringSubmatch(text(t, "../../../api/v1alpha1/hook_types.go"), -1) {
		found[m[1]] = skeinv1.HookName(m[2])
	}
	if len(found) < 12 {
		t.Fatalf("only %d hooks were found", len(found))
	}
	return found
}

func text(t *testing.T, file string) string {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// oneMessage is a store in which each message is the same.
type oneMessage struct{ store.Store }

func (oneMessage) Message(context.Context, string, string) (*store.Message, error) {
	return &store.Message{}, nil
}

// A queued hook whose arguments are not known is dropped.
func TestEachQueuedHookHasArguments(t *testing.T) {
	c := &Caller{service: New(Options{Store: oneMessage{}}), x: &codeexec.Execution{Host: &tool.Host{Thread: &store.Thread{}}}}
	for constant, name := range constants(t) {
		if !strings.HasPrefix(string(name), "after_") || name == skeinv1.HookAfterSystemMessage {
			continue // called at once
		}
		if _, err := c.arguments(t.Context(), name, &store.HookCall{}); err != nil {
			t.Errorf("%s: %v: add a case to Caller.arguments", constant, err)
		}
	}
}

// messageHooks calls no hook of an agent that has none for messages.
func TestEachHookForMessagesIsOne(t *testing.T) {
	all := constants(t)
	_, methods, found := strings.Cut(text(t, "write.go"), "\n// messageHooks implements ")
	if !found {
		t.Fatal("write.go has no messageHooks")
	}
	used := map[skeinv1.HookName]bool{}
	for _, m := range regexp.MustCompile(`skeinv1\.(Hook\w+)`).FindAllStringSubmatch(methods, -1) {
		used[all[m[1]]] = true
	}
	if len(used) < 4 {
		t.Fatalf("messageHooks calls only %d hooks", len(used))
	}
	for constant, name := range all {
		if has := hasMessageHooks(map[skeinv1.HookName]*definition.Hook{name: {}}); has != used[name] {
			t.Errorf("%s: messageHooks calls it: %t, hasMessageHooks has it: %t", constant, used[name], has)
		}
	}
}
