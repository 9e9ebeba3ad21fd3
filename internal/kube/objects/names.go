package objects

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
)

// hashLength is the number of hex digits of a hash: 64 bits, so that two causes do not collide by chance.
const hashLength = 16

// maxDerived keeps derived names short enough for label values.
const maxDerived = validation.LabelValueMaxLength

// DerivedName returns the same name for the same causes, so that a repeated create fails with a conflict instead of
// happening twice. prefix makes the name readable, and is cut to fit.
func DerivedName(prefix string, causes ...string) string {
	h := sha256.New()
	for _, c := range causes {
		h.Write([]byte(c))
		h.Write([]byte{0})
	}
	hash := hex.EncodeToString(h.Sum(nil))[:hashLength]
	prefix = cleanName(prefix)
	if limit := maxDerived - hashLength - 1; len(prefix) > limit {
		prefix = strings.TrimRight(prefix[:limit], "-.")
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

// EffectName returns the name of the Effect object for a plain or qualified name in code: "_" becomes "-", and
// "package/effect" becomes "package.effect" (EFF-02).
func EffectName(name string) string {
	return strings.NewReplacer("_", "-", "/", ".").Replace(name)
}

// ControlledBy reports whether the object with a UID controls another one.
func ControlledBy(o metav1.Object, uid string) bool {
	owner := metav1.GetControllerOfNoCopy(o)
	return owner != nil && string(owner.UID) == uid
}

// ThreadOwner returns an owner reference to a Thread, so that deleting the Thread also deletes the object (SUB-08).
func ThreadOwner(name, uid string) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion:         skeinv1.GroupVersion.String(),
		Kind:               "Thread",
		Name:               name,
		UID:                types.UID(uid),
		Controller:         ptr.To(true),
		BlockOwnerDeletion: ptr.To(true),
	}
}

// SandboxOwner returns an owner reference to the object that a sandbox belongs to: a Thread, or another whose code runs
// without one.
func SandboxOwner(thread *store.Thread) metav1.OwnerReference {
	o := ThreadOwner(thread.Name, thread.OwnerUID())
	o.Kind = thread.OwnedBy()
	return o
}

// Hash returns a short hash of the parts, in hex digits.
func Hash(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		_, _ = h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil))[:hashLength]
}
