package kube_test

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/model/provider"
	"github.com/skein-dev/skein/internal/sandbox/compile"
)

func definitions(c client.WithWatch) *kube.Definitions {
	return kube.NewDefinitions(c, objects.NewContents(c, c), compile.Compile, provider.NewFactory(nil))
}
