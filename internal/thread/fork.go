package thread

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"github.com/skein-dev/skein/internal/store"
)

// ForkOf says what a new thread is forked from (REL-02).
type ForkOf struct {
	ThreadID string
	// MessageID names the last message of the fork. When it is empty, Index does: the number of messages before that
	// message, silent and deeper ones included.
	MessageID string
	Index     int64
	Newest    bool // the last message that the origin has, in place of MessageID and Index
	// Seq is that of a Point that was found before, in place of MessageID and Index, when it is not 0.
	Seq int64
}

// Point is a message of a thread, at which the thread can be forked.
type Point struct {
	Index int64 // the number of messages before it
	// Seq is its sequence number, which stays when messages before it are removed, and is never that of another message.
	Seq int64
}

// Fork creates a thread that begins with the messages of another up to one of them (REL-02). It has the origin's files
// and workspace, and none of its mode, caps, skills, queue, values, state and variables. Empty fields of n are taken
// from the origin: the namespace, the agent, the user, the arguments and, with "Forked: " before it, the title. Fork is idempotent by
// n.ID like Create. It returns store.ErrNotFound when the origin does not exist or is being purged, and an *InvalidError that wraps
// store.ErrForkSources when its messages come from too many threads. The origin only gets a relationship.
func (s *Service) Fork(ctx context.Context, n NewThread, of ForkOf) (t *store.Thread, created bool, err error) {
	origin, err := s.store.Thread(ctx, of.ThreadID)
	if err != nil {
		return nil, false, fmt.Errorf("origin of the fork: %w", err)
	}
	if n.Namespace == "" {
		n.Namespace = origin.Namespace
	}
	if n.Agent == "" {
		n.Agent = origin.Agent
	}
	if n.UserID == "" {
		n.UserID = origin.UserID
	}
	if n.Title == "" {
		n.Title = ForkTitle(origin.Title)
	}
	if len(n.Arguments) == 0 {
		n.Arguments = origin.Arguments
	}
	if n.Fields.Workspace == nil {
		n.Fields.Workspace = origin.Fields.Workspace
	}
	n.fork = &store.Fork{Origin: of.ThreadID, MessageID: of.MessageID, Index: of.Index, Newest: of.Newest, Seq: of.Seq}
	t, created, err = s.Create(ctx, n)
	if errors.Is(err, store.ErrForkSources) {
		return nil, false, forkSourcesError(origin, err)
	}
	if !errors.Is(err, store.ErrForkPoint) {
		return t, created, err
	}
	err = s.noForkPoint(ctx, of.ThreadID, of.MessageID, of.Index, err)
	if errors.Is(err, store.ErrObjectDeleted) { // that of the origin: a caller must not take it for the new thread's own
		return nil, false, fmt.Errorf("origin of the fork is being deleted: %w", store.ErrNotFound)
	}
	return nil, false, err
}

// forkSourcesError says that the messages of a thread come from too many others, and what to do.
func forkSourcesError(origin *store.Thread, cause error) error {
	e := invalid("messageIndex", "the thread %s is a fork of a fork of many others, or many messages that it has from them were changed: a fork has its messages from "+
		"at most %d threads, in at most %d parts. Fork at an earlier message, fork one of the earlier threads, or export the thread and import it as a new one",
		origin.Name, store.MaxForkSources, store.MaxForkSegments)
	e.cause = cause
	return e
}

// ForkPoint returns the message at which a thread would be forked, or an *InvalidError when it has no such message. Of of,
// ThreadID does not count. A thread that is being purged has no messages any more: then it returns store.ErrObjectDeleted.
func (s *Service) ForkPoint(ctx context.Context, id string, of ForkOf) (p Point, err error) {
	t, err := s.store.Thread(ctx, id)
	if err != nil {
		return p, err
	}
	p.Index = of.Index
	switch {
	case of.MessageID != "":
		p.Index, err = s.store.MessageIndex(ctx, id, of.MessageID)
		if errors.Is(err, store.ErrNotFound) {
			return p, s.noForkPoint(ctx, id, of.MessageID, 0, err)
		}
		if err != nil {
			return p, err
		}
		m, err := s.store.Message(ctx, id, of.MessageID)
		if err != nil {
			return p, err
		}
		p.Seq = m.Seq
		return p, nil
	case of.Newest:
		p.Index = t.Messages - 1
	}
	p.Seq, err = s.seqAt(ctx, id, p.Index)
	if errors.Is(err, store.ErrForkPoint) {
		return p, s.noForkPoint(ctx, id, "", p.Index, err)
	}
	return p, err
}

// noForkPoint returns the error for a message that a thread did not have a moment ago. It reads the thread again, which may have been cut,
// or purged in part, since it was read.
func (s *Service) noForkPoint(ctx context.Context, id, messageID string, index int64, cause error) error {
	t, err := s.store.Thread(ctx, id)
	if err != nil {
		return err
	}
	return forkPointError(t, messageID, index, cause)
}

// seqAt returns the sequence number of the message with an index, or store.ErrForkPoint.
func (s *Service) seqAt(ctx context.Context, id string, index int64) (int64, error) {
	if index < 0 {
		return 0, store.ErrForkPoint
	}
	page, err := s.store.Messages(ctx, id, store.MessageQuery{Offset: int(index), Limit: 1, Order: "asc", IncludeSilent: true, AllDepths: true})
	if err != nil {
		return 0, err
	}
	if len(page.Messages) == 0 {
		return 0, store.ErrForkPoint
	}
	return page.Messages[0].Seq, nil
}

// forkPointError returns the error that says at which messages a thread can be forked or truncated. It wraps store.ErrObjectDeleted
// when the thread is being deleted, because then it will never have the message.
func forkPointError(t *store.Thread, messageID string, index int64, cause error) error {
	if t.Deleting {
		return fmt.Errorf("thread %s: %w", t.Name, store.ErrObjectDeleted)
	}
	e := invalid("messageIndex", "the thread %s has %d messages: give an index from 0 to %d, not %d", t.Name, t.Messages, t.Messages-1, index)
	switch {
	case messageID != "":
		e = invalid("messageId", "the thread has no message %q: name another one; a queued one is not part of the conversation yet", messageID)
	case t.Messages == 0:
		e = invalid("messageIndex", "the thread %s has no messages: send one first", t.Name)
	}
	e.cause = cause
	return e
}

const forkedPrefix = "Forked"

var forkedTitle = regexp.MustCompile(`(?s)^` + forkedPrefix + `(?:\((\d{1,6})\))?: (.+)$`)

// ForkTitle returns the title of a fork: "Forked: X", for a fork of a fork "Forked(2): X", and so on.
func ForkTitle(title string) string {
	if title == "" {
		title = "Untitled"
	}
	m := forkedTitle.FindStringSubmatch(title)
	if m == nil {
		return forkedPrefix + ": " + title
	}
	n := 1
	if m[1] != "" {
		n, _ = strconv.Atoi(m[1]) // digits only
	}
	return fmt.Sprintf("%s(%d): %s", forkedPrefix, n+1, m[2])
}

// Truncation says where to cut a conversation (MSG-11).
type Truncation struct {
	MessageID     string // the last message that stays; Index applies when it is empty
	Index         int64  // -1 removes all
	ExpectVersion *int64 // fails with store.ErrConflict when the thread has another version (THR-11)
}

// Truncate removes all messages after one, and the relationships made past it; the queue stays (MSG-11). It returns the
// index of the last message that stays and how many were removed. It fails with store.ErrRunning while a run is in
// progress or parked.
func (st *State) Truncate(ctx context.Context, at Truncation) (index, removed int64, err error) {
	op := &store.Truncate{MessageID: at.MessageID, Index: at.Index, ExpectVersion: at.ExpectVersion}
	err = st.Apply(ctx, op)
	if errors.Is(err, store.ErrForkPoint) {
		info, gone := st.Info(ctx)
		if gone != nil {
			return 0, 0, gone
		}
		return 0, 0, forkPointError(info, at.MessageID, at.Index, err)
	}
	return op.Index, op.Removed, err
}

// maxComment limits the comment of a relationship, in bytes.
const maxComment = 4096

// ErrNoPeer means that the other thread of a relationship does not exist, or is being purged. It wraps store.ErrNotFound.
var ErrNoPeer = fmt.Errorf("related thread: %w", store.ErrNotFound)

// Relate stores a relationship with both threads and returns the stored one. When the thread already has a relationship
// of the same peer, type and role, nothing changes: Relate returns the existing one and existed true. It returns
// ErrNoPeer when the peer does not exist, or is being purged and the message is to be one of its own.
func (st *State) Relate(ctx context.Context, r store.Relationship) (kept *store.Relationship, existed bool, err error) {
	if err := st.checkRelationship(&r); err != nil {
		return nil, false, err
	}
	op := &store.PutRelationship{R: r}
	err = st.Apply(ctx, op)
	switch {
	case err == nil:
		return &op.Kept, op.Existed, nil
	case errors.Is(err, store.ErrNotFound): // of one of the two threads
		if _, err := st.Info(ctx); err != nil {
			return nil, false, err
		}
		return nil, false, ErrNoPeer
	case !errors.Is(err, store.ErrForkPoint):
		return nil, false, err
	case r.Role == store.RelationParent:
		return nil, false, st.svc.noForkPoint(ctx, st.id, "", r.MessageIndex, err)
	}
	err = st.svc.noForkPoint(ctx, r.ThreadID, "", r.MessageIndex, err)
	if errors.Is(err, store.ErrObjectDeleted) || errors.Is(err, store.ErrNotFound) { // a caller must not take it for the thread's own
		return nil, false, ErrNoPeer
	}
	return nil, false, err
}

func (st *State) checkRelationship(r *store.Relationship) error {
	switch {
	case r.Type != store.RelationHandoff && r.Type != store.RelationMention:
		return invalid("type", "use handoff or mention, not %q: a fork adds its own relationship", r.Type)
	case r.Role != store.RelationParent && r.Role != store.RelationChild:
		return invalid("role", "give parent or child, not %q", r.Role)
	case len(r.Comment) > maxComment:
		return invalid("comment", "it has %d bytes, more than %d: shorten it", len(r.Comment), maxComment)
	case r.ThreadID == st.id:
		return invalid("threadID", "a thread cannot be related to itself")
	case r.MessageIndex < -1:
		return invalid("messageIndex", "give the index of a message of the parent, or leave it out")
	}
	return nil
}

// Relationships returns a page of the thread's relationships, oldest first, and their total number.
func (st *State) Relationships(ctx context.Context, limit, offset int) ([]store.Relationship, int64, error) {
	return st.svc.store.Relationships(ctx, st.id, limit, offset)
}
