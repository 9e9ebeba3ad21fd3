package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RetainedList is a page of threads that are kept without a Thread object, by id. Each has the name of its last
// object.
type RetainedList struct {
	metav1.TypeMeta `json:",inline"`
	// Threads is the page.
	Threads []ThreadRecord `json:"threads"`
	// HasMore reports whether more threads follow: request them with the id of the last one.
	HasMore bool `json:"hasMore"`
}

// KindRetainedList is the kind of a RetainedList.
const KindRetainedList = "RetainedList"
