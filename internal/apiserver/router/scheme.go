package router

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// scheme holds what the generic server itself answers with: Status and discovery documents. The types of the runtime
// API are plain JSON and need no scheme.
var scheme = runtime.NewScheme()

// Codecs encodes what the generic server itself answers with.
var Codecs = serializer.NewCodecFactory(scheme)

func init() {
	v1 := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, v1)
	scheme.AddUnversionedTypes(v1,
		&metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
}
