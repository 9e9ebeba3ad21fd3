package kube

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
)

// hashLength is the number of hex digits that end a derived name: 64 bits, so that two causes do not collide by
// chance.
const hashLength = 16

// maxDerived keeps derived names short enough for label values.
const maxDerived = validation.LabelValueMaxLength

// derivedName returns the same name for the same causes, so that a repeated create fails with a conflict instead of
// happening twice. prefix makes the name readable, and is cut to fit.
func derivedName(prefix string, causes ...string) string {
	h := sha256.New()
	for _, c := range causes {
		h.Write([]byte(c))
		h.Write([]byte{0})
	}
	hash := hex.EncodeToString(h.Sum(nil))[:hashLength]
	prefix = cleanName(prefix)
	if room := maxDerived - hashLength - 1; len(prefix) > room {
		prefix = strings.TrimRight(prefix[:room], "-.")
	}
	if prefix == "" {
		return "t-" + hash
	}
	return prefix + "-" + hash
}

// cleanName turns any text into a valid beginning of an object name.
func cleanName(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r + ('a' - 'A')
		default:
			return '-'
		}
	}, s)
	return strings.Trim(s, "-")
}

// RuntimeLabels returns the labels of every object that the runtime creates for a thread (K8S-03).
func RuntimeLabels(t *store.Thread) map[string]string {
	l := map[string]string{
		skeinv1.LabelManagedBy: skeinv1.ManagedByValue,
		skeinv1.LabelThreadID:  t.ID,
	}
	if t.RootID != "" {
		l[skeinv1.LabelRootThread] = t.RootID
	}
	// An object name may be too long for a label value. Then only the id identifies the thread.
	if len(t.Name) <= validation.LabelValueMaxLength {
		l[skeinv1.LabelThread] = t.Name
	}
	return l
}

// EffectObjectName returns the name of the Effect object for a plain or qualified name in code: "_" becomes "-", and
// "package/effect" becomes "package.effect" (EFF-02).
func EffectObjectName(name string) string {
	return strings.NewReplacer("_", "-", "/", ".").Replace(name)
}
