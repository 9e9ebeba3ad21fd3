package definition

import (
	"strings"
	"testing"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

func TestNameOfSpeaker(t *testing.T) {
	for label, want := range map[string]string{
		"":                       "",
		"Critic":                 "Critic",
		" The strict one (2nd) ": "The_strict_one__2nd",
		"审稿人":                    "",
		strings.Repeat("x", 200): strings.Repeat("x", 64),
	} {
		if got := SpeakerName(&Side{Spec: skeinv1.AgentSide{Label: label}}); got != want {
			t.Errorf("%q: got %q, want %q", label, got, want)
		}
	}
}
