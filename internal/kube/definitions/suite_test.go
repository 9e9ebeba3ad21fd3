package definitions_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/model/providers"
	"github.com/skein-dev/skein/internal/sandbox/compile"
)

func TestDefinitions(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "definitions")
}

func resolver(c client.WithWatch) *definitions.Resolver {
	return definitions.New(c, objects.NewContents(c, c), compile.Compile, providers.NewFactory(nil))
}
