package store

import "context"

// MemoryStore finds messages by what embedding models made of them (RUN-08).
type MemoryStore interface {
	// Nearest gives the messages whose vectors are nearest to one, the nearest first. Messages that were edited,
	// silenced or deleted since they were embedded are not found, nor are those of threads without an object. It
	// looks at every vector that the query selects, but keeps no more of them than it gives.
	Nearest(ctx context.Context, q NearestQuery) ([]NearMessage, error)
}

// NearestQuery selects the embedded messages of one agent in the threads of one user.
type NearestQuery struct {
	Namespace string
	Agent     string // that the messages were said to, or by
	UserID    string // of the threads; "" for those that have no user
	Space     string // of the vectors: see PutEmbedding
	Vector    []float32
	Since     int64 // only messages from then on
	Until     int64 // only messages before then; no end when 0
	Limit     int   // 10 when 0
}

// NearMessage is one message that was found.
type NearMessage struct {
	ThreadID string
	Name     string // of the Thread object
	Title    string
	Message  Message
	Score    float64 // the cosine of the angle between the vectors: 1 for the same direction
}

// PutEmbedding keeps the vector of a message, in the place of one that it has (RUN-07). It is no change of the
// thread. Nothing is kept, and it is no error, when the message is not the thread's own any more, is silent, reads
// otherwise than the text that was embedded, or has a vector of no length.
type PutEmbedding struct {
	MessageID string
	Content   string // that was embedded
	Agent     string
	// Space is what makes vectors comparable: those of different spaces never are.
	Space  string
	Vector []float32
	Kept   bool // filled in
}

// AddTaskUsage adds what a task that follows a run used (RUN-07), once for each run and task, however often it
// is repeated. It is no change of the thread.
type AddTaskUsage struct {
	RunID string
	Task  string
	Agent string
	Usage RunUsage
	Added bool // filled in
}

// UsageRecord is what one run used, or one task that followed it.
type UsageRecord struct {
	RunID     string
	Task      string // "" for the run itself
	Agent     string
	Status    RunStatus // of a run
	Turns     int64     // model calls of a run
	Usage     RunUsage
	StartedAt int64
	EndedAt   int64
}

func (*PutEmbedding) op() {}
func (*AddTaskUsage) op() {}
