package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SubresourceMemory searches what was said in threads of the thread's agent and user by meaning: GET
// memory?q=. It shows messages of those threads in which the caller has get on threads/messages.
const SubresourceMemory Subresource = "memory"

// MaxMemoryHits is the largest limit of a search of the memory.
const MaxMemoryHits = 50

// MaxMemoryQuery is how long, in bytes, the text of such a search may be.
const MaxMemoryQuery = 4000

// MemoryHit is one message that was found.
type MemoryHit struct {
	// Thread is the name of the Thread object.
	Thread string `json:"thread"`
	// ThreadID is the UUID.
	ThreadID string `json:"threadId"`
	// Title of the thread.
	Title string `json:"title,omitempty"`
	// Score is the cosine of the angle between the message's vector and that of the query: 1 at most.
	Score float64 `json:"score"`
	// Message that was found.
	Message Message `json:"message"`
}

// MemoryHitList is what was found, the closest first.
type MemoryHitList struct {
	metav1.TypeMeta `json:",inline"`
	// Hits of the search.
	Hits []MemoryHit `json:"hits"`
}

// KindMemoryHitList is the kind of a MemoryHitList.
const KindMemoryHitList = "MemoryHitList"
