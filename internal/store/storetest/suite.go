// Package storetest is the suite that every implementation of the store contract must pass. Call DescribeStore
// from a Ginkgo suite of the implementation.
package storetest

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/store"
)

// Backend is a place for data that is empty at first. Open may be called again after its store was closed, and then
// finds what was written.
type Backend interface {
	Open(c clock.PassiveClock) (store.Store, error)
	// Exclusive reports whether the data belongs to one process at a time, so that opening it again frees leases.
	// Otherwise leases survive the process that took them.
	Exclusive() bool
	// SQL opens the database beside the store.
	SQL() (*sql.DB, error)
}

// DescribeStore adds the suite for one implementation; newBackend is called for each spec.
func DescribeStore(name string, newBackend func() Backend) bool {
	return Describe("store "+name, func() {
		e := &env{}
		BeforeEach(func() { e.start(newBackend()) })
		for _, part := range []func(*env){
			describeThreads, describeLife, describeVersions, describeFields, describeOnce, describePurge, describeRemovals, describeRemnants, describeAges, describeMessages, describePages, describePageBytes, describeInbox, describeLog, describeLines,
			describeRuns, describeValues, describeEnv, describeFiles, describeContents, describeLeases, describeRunnable, describeFirings, describeFiringClaims, describeFiringSearches, describeFiringCosts, describeMissed, describeSchedules, describeEffectArgs, describeNotifications, describeWebhooks,
			describeConcurrency, describeModel, describeScript, describeReopen, describeForks, describeForkBounds, describeSummaries, describeRelated, describeForkModel, describeSearch,
			describeState, describeKVService, describeLifecycle, describeNamesakes, describeUsage, describeImport, describeMemory, describeTaskUsage, describeHandoff, describePermits, describeChildren, describeChildCounts, describeQuotas, describeMessageBytes, describeStatistics, describeNamespaces, describeRoundTrips,
		} {
			part(e)
		}
	})
}

// env is the environment of a spec.
type env struct {
	store   store.Store
	clock   *clocktesting.FakeClock
	backend Backend
	made    int
	beside  *sql.DB // see countedBytes
}

// epoch is the start of the suite's clock.
var epoch = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func (e *env) start(b Backend) {
	e.backend, e.clock, e.made, e.beside = b, clocktesting.NewFakeClock(epoch), 0, nil
	e.open()
	DeferCleanup(func() { Expect(e.store.Close()).To(Succeed()) })
}

func (e *env) open() {
	GinkgoHelper()
	s, err := e.backend.Open(e.clock)
	Expect(err).NotTo(HaveOccurred())
	e.store = s
}

func (e *env) reopen() {
	GinkgoHelper()
	Expect(e.store.Close()).To(Succeed())
	e.open()
}

func (e *env) now() int64 { return e.clock.Now().UnixMicro() }

// thread creates a thread and returns its id.
func (e *env) thread(ctx context.Context, ops ...store.Op) string {
	GinkgoHelper()
	return e.threadIn(ctx, "default", ops...)
}

func (e *env) threadIn(ctx context.Context, namespace string, ops ...store.Op) string {
	GinkgoHelper()
	e.made++
	id := fmt.Sprintf("00000000-0000-4000-8000-%012d", e.made)
	_, created, err := e.store.CreateThread(ctx, store.Thread{ID: id, Namespace: namespace, Name: fmt.Sprint("thread-", e.made), Agent: "helper"}, ops...)
	Expect(err).NotTo(HaveOccurred())
	Expect(created).To(BeTrue())
	return id
}

func (e *env) info(ctx context.Context, id string) *store.Thread {
	GinkgoHelper()
	t, err := e.store.Thread(ctx, id)
	Expect(err).NotTo(HaveOccurred())
	return t
}

// apply commits ops from outside a run.
func (e *env) apply(ctx context.Context, id string, ops ...store.Op) {
	GinkgoHelper()
	Expect(e.store.Apply(ctx, id, nil, ops...)).To(Succeed())
}

// say appends a user message.
func (e *env) say(ctx context.Context, id, text string) *store.Message {
	GinkgoHelper()
	m := message(text)
	e.apply(ctx, id, &store.AppendMessage{Message: m})
	return m
}

// texts returns the contents of a page of messages.
func (e *env) texts(ctx context.Context, id string, q store.MessageQuery) []string {
	GinkgoHelper()
	page, err := e.store.Messages(ctx, id, q)
	Expect(err).NotTo(HaveOccurred())
	return contents(page.Messages)
}

func contents(messages []store.Message) []string {
	texts := []string{}
	for _, m := range messages {
		texts = append(texts, *m.Content)
	}
	return texts
}

func (e *env) inbox(ctx context.Context, id string) []store.InboxItem {
	GinkgoHelper()
	items, err := e.store.Inbox(ctx, id)
	Expect(err).NotTo(HaveOccurred())
	return items
}

func (e *env) events(ctx context.Context, id string) []store.Event {
	GinkgoHelper()
	events, err := e.store.Events(ctx, id, 0, 0)
	Expect(err).NotTo(HaveOccurred())
	return events
}

func (e *env) eventTypes(ctx context.Context, id string) []string {
	GinkgoHelper()
	types := []string{}
	for _, ev := range e.events(ctx, id) {
		types = append(types, ev.Type)
	}
	return types
}

func message(text string) *store.Message {
	return &store.Message{Role: store.RoleUser, Content: &text}
}

// queued returns an Enqueue of a user message.
func queued(id, text string) *store.Enqueue {
	m := message(text)
	m.ID = id
	payload, err := json.Marshal(m)
	Expect(err).NotTo(HaveOccurred())
	return &store.Enqueue{Item: store.InboxItem{Kind: store.InboxMessage, Payload: payload}}
}

func ptr[T any](v T) *T { return &v }
