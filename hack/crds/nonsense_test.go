package main

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// The fields in which a value that is nonsense elsewhere means something. Each ends the path of a field.
var (
	zeroMeans = []string{
		".idleExpiry", ".threadIdleExpiry", // never
		".ttlAfterFinished", ".after", ".jitter", // at once, or none
		".latency", ".chunkDelay", ".retryAfter", // of a script
		".fileQuota.bytes", ".hard.bytes", ".hard.messageBytes", ".hard.costPerDay", // no bound, or nothing at all
		".resources.limits{}", ".resources.requests{}", // of any resource; rules of SandboxPool bound memory and cpu
	}
	longMeans     = []string{".after", ".latency", ".chunkDelay", ".retryAfter"}
	negativeMeans = []string{".tolerationSeconds"} // the same as 0, says Kubernetes
)

func endsIn(path string, list []string) bool {
	for _, end := range list {
		if strings.HasSuffix(path, end) {
			return true
		}
	}
	return false
}

// TestNoFieldTakesNonsense holds that a duration, a quantity or a number that cannot be meant is refused at admission, in every
// field of every kind.
func TestNoFieldTakesNonsense(t *testing.T) {
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(skeinv1.AddToScheme(scheme)).To(Succeed())
	files, err := filepath.Glob("../../config/crd/bases/*.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(files).NotTo(BeEmpty())
	for _, file := range files {
		kind, s := schemaOf(g, file)
		spec := s.Properties["spec"]
		specType, ok := fieldOf(scheme.KnownTypes(skeinv1.GroupVersion)[kind], "spec")
		g.Expect(ok).To(BeTrue(), kind)
		leaves(&spec, specType, kind+".spec", func(s *structuralschema.Structural, typ reflect.Type, path string) {
			var nonsense []any
			switch typ {
			case reflect.TypeFor[metav1.Duration]():
				nonsense = []any{"-5s", "-0.1s"}
				if !endsIn(path, zeroMeans) {
					nonsense = append(nonsense, "0", "0s", "0h0m")
				}
				if !endsIn(path, longMeans) {
					nonsense = append(nonsense, "99999h")
				}
			case reflect.TypeFor[resource.Quantity]():
				nonsense = []any{int64(-1), "-1", "-64Mi", "-1m", "-1e3"}
				if !endsIn(path, zeroMeans) {
					nonsense = append(nonsense, int64(0), "0", "0Mi", "0.0")
				}
			default:
				if typ.Kind() != reflect.Int32 && typ.Kind() != reflect.Int64 || endsIn(path, negativeMeans) {
					return
				}
				nonsense = []any{int64(-1), int64(-1 << 31), int64(-1 << 53)}
			}
			refusals := accepter(s)
			for _, value := range nonsense {
				if len(refusals(value)) == 0 {
					t.Errorf("%s takes %v: bound it with a rule whose message says what to write, or say in zeroMeans, longMeans or negativeMeans what that means", path, value)
				}
			}
		})
	}
}

// TestEveryQuantityHasAMessage holds that a text that is no quantity is refused with a sentence, in every field of every kind: the
// pattern that controller-gen writes would show a regular expression.
func TestEveryQuantityHasAMessage(t *testing.T) {
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(skeinv1.AddToScheme(scheme)).To(Succeed())
	files, err := filepath.Glob("../../config/crd/bases/*.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	seen := 0
	for _, file := range files {
		kind, s := schemaOf(g, file)
		spec := s.Properties["spec"]
		specType, ok := fieldOf(scheme.KnownTypes(skeinv1.GroupVersion)[kind], "spec")
		g.Expect(ok).To(BeTrue(), kind)
		leaves(&spec, specType, kind+".spec", func(s *structuralschema.Structural, typ reflect.Type, path string) {
			if typ != reflect.TypeFor[resource.Quantity]() {
				return
			}
			seen++
			refusals := accepter(s)
			for _, value := range []any{"lots", "500 MB", "500mb", "1,5Gi", "1.2.3", "1e-999999999", "1E999999999", ""} {
				errs := refusals(value)
				if len(errs) != 1 || !strings.Contains(errs[0].Detail, "use a quantity such as") {
					t.Errorf("%s refuses %q with %v: give it a rule whose message says what to write", path, value, errs)
				}
			}
		})
	}
	g.Expect(seen).To(BeNumerically(">", 8))
}
