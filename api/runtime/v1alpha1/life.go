package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RetainedList is a page of threads that are kept without a Thread object, by id. Their name is
// that of the object that they had last.
type RetainedList struct {
	metav1.TypeMeta `json:",inline"`
	// Threads of the page.
	Threads []ThreadRecord `json:"threads"`
	// HasMore tells that there are threads behind this page: ask for those after the id of its last.
	HasMore bool `json:"hasMore"`
}

// KindRetainedList is the kind of a RetainedList.
const KindRetainedList = "RetainedList"
