package store

import "context"

// MemoryStore finds messages by their embeddings (RUN-08).
type MemoryStore interface {
	// Nearest returns the messages whose vectors are nearest to q.Vector, the nearest first. It does not find messages
	// that were edited, silenced or deleted after they were embedded, nor those of threads without an object. It reads
	// every vector that the query selects, but holds no more of them in memory than it returns.
	Nearest(ctx context.Context, q NearestQuery) ([]NearMessage, error)
}

// NearestQuery selects the embedded messages of one agent in the threads of one user.
type NearestQuery struct {
	Namespace string
	Agent     string // the agent that wrote the messages or received them
	UserID    string // user of the threads; "" selects threads without a user
	Space     string // of the vectors; see PutEmbedding
	Vector    []float32
	Since     int64 // only messages from this time on
	Until     int64 // only messages before this time; 0 for no end
	Limit     int   // 10 when 0
}

// NearMessage is one message that Nearest found.
type NearMessage struct {
	ThreadID string
	Name     string // of the Thread object
	Title    string
	Message  Message
	Score    float64 // the cosine of the angle between the vectors: 1 for the same direction
}

// PutEmbedding stores the vector of a message and replaces an earlier one (RUN-07). It does not change the version of
// the thread. It stores nothing and returns no error when the message no longer belongs to the thread, is silent, or
// reads differently from the text that was embedded, or when the vector's length is zero.
type PutEmbedding struct {
	MessageID string
	Content   string // the text that was embedded
	Agent     string
	// Space makes vectors comparable. Vectors of different spaces are never compared.
	Space  string
	Vector []float32
	Kept   bool // filled in
}

// AddTaskUsage adds what a post-run task used (RUN-07). It counts once for each run and task, however often it is
// repeated. It does not change the version of the thread.
type AddTaskUsage struct {
	RunID string
	Task  string
	Agent string
	Usage RunUsage
	Added bool // filled in
}

// UsageRecord is what one run used, or one of its post-run tasks.
type UsageRecord struct {
	RunID     string
	Task      string // "" for the run itself
	Agent     string
	Status    RunStatus // of the run
	Turns     int64     // model calls of the run
	Usage     RunUsage
	StartedAt int64
	EndedAt   int64
}

func (*PutEmbedding) op() {}
func (*AddTaskUsage) op() {}
