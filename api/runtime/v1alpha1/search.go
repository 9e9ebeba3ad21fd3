package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SearchHit is one message in the result of a search.
type SearchHit struct {
	// Namespace is the namespace of the thread.
	Namespace string `json:"namespace"`
	// Thread is the name of the Thread object.
	Thread string `json:"thread"`
	// ThreadID is the UUID.
	ThreadID string `json:"threadId"`
	// Title is the title of the thread.
	Title string `json:"title,omitempty"`
	// Snippet is the part of the content around the first word that matches.
	Snippet string `json:"snippet"`
	// Rank is higher for better matches. Only hits of one search can be compared.
	Rank float64 `json:"rank"`
	// Message is the message that was found.
	Message Message `json:"message"`
}

// SearchHitList is a page of the result of a search, best matches first.
type SearchHitList struct {
	metav1.TypeMeta `json:",inline"`
	// Hits is the page.
	Hits []SearchHit `json:"hits"`
	// HasMore reports whether more hits follow.
	HasMore bool `json:"hasMore"`
}

// KindSearchHitList is the kind of a SearchHitList.
const KindSearchHitList = "SearchHitList"
