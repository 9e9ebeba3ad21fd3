package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MaxMemoryHits is the maximum limit of a search of the memory.
const MaxMemoryHits = 50

// MaxMemoryQuery is the maximum length of the text of such a search, in bytes.
const MaxMemoryQuery = 4000

// MemoryHit is one message in the result of a search.
type MemoryHit struct {
	// Thread is the name of the Thread object.
	Thread string `json:"thread"`
	// ThreadID is the UUID.
	ThreadID string `json:"threadId"`
	// Title is the title of the thread.
	Title string `json:"title,omitempty"`
	// Score is the cosine of the angle between the vectors of the message and of the query, at most 1.
	Score float64 `json:"score"`
	// Message is the message that was found.
	Message Message `json:"message"`
}

// MemoryHitList is the result of a search, closest first.
type MemoryHitList struct {
	metav1.TypeMeta `json:",inline"`
	// Hits lists the messages that were found.
	Hits []MemoryHit `json:"hits"`
}

// KindMemoryHitList is the kind of a MemoryHitList.
const KindMemoryHitList = "MemoryHitList"
