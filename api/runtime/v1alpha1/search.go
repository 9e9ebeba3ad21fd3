package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ViewSearches finds messages by their text across namespaces: GET searches?q=. It shows what the caller
// may read: messages of the namespaces in which he has get on threads/messages.
const ViewSearches View = "searches"

// SearchHit is one message that was found.
type SearchHit struct {
	// Namespace of the thread.
	Namespace string `json:"namespace"`
	// Thread is the name of the Thread object.
	Thread string `json:"thread"`
	// ThreadID is the UUID.
	ThreadID string `json:"threadId"`
	// Title of the thread.
	Title string `json:"title,omitempty"`
	// Snippet of the content, around the first word that was found.
	Snippet string `json:"snippet"`
	// Rank: more is better. Only hits of one search compare.
	Rank float64 `json:"rank"`
	// Message that was found.
	Message Message `json:"message"`
}

// SearchHitList is a page of what was found, the best first.
type SearchHitList struct {
	metav1.TypeMeta `json:",inline"`
	// Hits of the page.
	Hits []SearchHit `json:"hits"`
	// HasMore tells that there are more beyond this page.
	HasMore bool `json:"hasMore"`
}

// KindSearchHitList is the kind of a SearchHitList.
const KindSearchHitList = "SearchHitList"
