package storetest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

// Fields that are not read back as they were given, and why. A new field is in none of these lists, so the specs below fail until the
// queries and the scan function have it, or until it is added here.
var (
	threadsSet = map[string]string{
		"Threadless": "never stored", "Kind": "never stored",
		"OriginAgent": "the agent at first", "DeclaredAgent": "the agent at first",
		"RootID": "that of the parent", "Depth": "one more than the parent's", "EnvRoot": "by Adopt",
		"OriginID": "by Fork", "ForkIndex": "by Fork",
		"TerminatedAt": "by Terminate", "TerminatedReason": "by Terminate", "ArchivedAt": "by UpdateThread",
		"DestroyedAt": "by Destroy", "DestroyedReason": "by Destroy", "RetainedAt": "by Retain", "ObjectUID": "by Adopt",
		"Deleting": "by MarkDeleted", "Waits": "by AwaitQuota", "Parked": "by Park",
		"Version": "counted", "Messages": "counted", "Queued": "counted", "LastSeq": "counted", "Appended": "counted", "Diff": "counted",
		"LastActivityAt": "the time of a change", "UserActivityAt": "the time of a message",
	}
	firingsSet = map[string]string{
		"Attempts": "counted", "Epoch": "counted", "StartedAt": "by ClaimFirings", "EndedAt": "by FinishFiring", "Error": "by FinishFiring",
		"Waiting": "by FinishFiring", "Cost": "by FinishFiring", "Log": "by FinishFiring",
		"KeyedBy":   "by a restore; the specs of backups look at it",
		"TakesArgs": "an instruction to RecordFiring, which is not stored",
	}
	// neverSeen are fields of these records that keep their zero value here.
	neverSeen = []string{"Threadless", "Kind", "KeyedBy", "TakesArgs"}
)

// distinct returns a value of a struct type in which no exported field is empty, and no two fields of one type are the same. Values with
// different n have no field in common, but for fields of other types than texts, numbers and JSON.
func distinct[T any](n int) T {
	v := Filled[T]()
	s := reflect.ValueOf(&v).Elem()
	for i := range s.NumField() {
		name, f := s.Type().Field(i).Name, s.Field(i)
		switch {
		case f.Type() == reflect.TypeFor[json.RawMessage]():
			f.SetBytes(fmt.Appendf(nil, `{"of":"%s %d"}`, name, n))
		case f.Kind() == reflect.String:
			f.SetString(fmt.Sprint(name, " ", n))
		case f.CanInt():
			f.SetInt(int64(100*n + i))
		case f.CanFloat():
			f.SetFloat(float64(100*n+i) + 0.5)
		}
	}
	return v
}

// sameFields checks that a record was read as it was given, but for the fields that the store sets.
func sameFields[T any](given, read T, set map[string]string) {
	GinkgoHelper()
	was, is := reflect.ValueOf(given), reflect.ValueOf(read)
	for i := range was.NumField() {
		if name := was.Type().Field(i).Name; set[name] == "" {
			Expect(is.Field(i).Interface()).To(Equal(was.Field(i).Interface()), "the field %s of %T: see its query, and where its rows are read", name, given)
		}
	}
}

// seen collects the fields of records that were not empty in one of them.
type seen map[string]bool

func (s seen) look(record any) {
	v := reflect.ValueOf(record)
	empty := Unset(record)
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; !slices.Contains(empty, name) {
			s[name] = true
		}
	}
}

// expectAll checks that each field was seen.
func (s seen) expectAll(record any) {
	GinkgoHelper()
	for _, f := range reflect.VisibleFields(reflect.TypeOf(record)) {
		if f.IsExported() && !slices.Contains(neverSeen, f.Name) {
			Expect(s).To(HaveKey(f.Name), "the field %s of %T is not read, or nothing in this spec sets it", f.Name, record)
		}
	}
}

func describeRoundTrips(e *env) {
	Describe("records", func() {
		It("of threads have each field that was given, and each that the store sets", func(ctx SpecContext) {
			parent, origin := e.thread(ctx), e.said(ctx, 5)
			given := distinct[store.Thread](1)
			given.Namespace, given.ParentID = "default", parent
			stored, created, err := e.store.CreateThread(ctx, given, &store.Fork{Origin: origin, Index: 3})
			Expect(err).NotTo(HaveOccurred())
			Expect(created).To(BeTrue())
			sameFields(given, *stored, threadsSet)
			s := seen{}
			steps := [][]store.Op{
				{&store.AppendMessage{Message: message("said")}, putFile("/a", 1), putFile("/a", 2), &store.RemoveFile{Path: "/a"}},
				{queued("m", "waits"), &store.Park{Unless: func(store.InboxItem) bool { return false }}},
				{&store.AwaitQuota{Message: "waits"}},
				{&store.UpdateThread{Archived: ptr(true)}},
				{&store.Destroy{Reason: store.DestroyedExplicit}},
				{&store.Terminate{Reason: "Ended"}},
				nil, // the object is deleted
				{&store.Retain{NamespaceUID: "uid of the namespace"}},
				{&store.Adopt{ObjectUID: "uid", NamespaceUID: "uid of the namespace", Name: "new", Agent: "new"}},
			}
			for _, ops := range steps {
				s.look(*e.info(ctx, given.ID))
				e.clock.Step(time.Second)
				if ops == nil {
					Expect(e.store.MarkDeleted(ctx, given.ID, given.ID)).To(Succeed())
				} else {
					e.apply(ctx, given.ID, ops...)
				}
				now := e.info(ctx, given.ID)
				s.look(*now)
				if now.ParentID != "" {
					Expect(e.store.ChildrenSince(ctx, parent, 0)).To(HaveExactElements(*now), "a list has the same")
				}
			}
			s.expectAll(store.Thread{})
			Expect(Unset(e.info(ctx, given.ID).Diff)).To(BeEmpty())
		})

		It("of runs have each field that was given, when they are made and when they change", func(ctx SpecContext) {
			id := e.thread(ctx)
			for n := range 3 {
				given := distinct[store.Run](n + 1)
				given.ID, given.ThreadID, given.Status = "sess_1", id, store.RunWaiting // WakeAt is kept only then
				Expect(Unset(given)).To(BeEmpty())
				e.apply(ctx, id, &store.PutRun{Run: given})
				read, err := e.store.Run(ctx, id, given.ID)
				Expect(err).NotTo(HaveOccurred())
				sameFields(given, *read, nil)
				Expect(e.store.Runs(ctx, id, 0, 0)).To(HaveExactElements(given))
			}
		})

		It("of firings have each field that was given, and each that the store sets", func(ctx SpecContext) {
			given := distinct[store.Firing](1)
			given.ThreadID, given.Namespace, given.Status, given.Origin = e.thread(ctx), "default", store.FiringPending, store.OriginManual
			given.AvailableAt = e.now() + time.Minute.Microseconds()
			Expect(e.store.RecordFiring(ctx, given)).To(BeTrue())
			s := seen{}
			read := func() store.Firing {
				GinkgoHelper()
				f, err := e.store.Firing(ctx, given.Key())
				Expect(err).NotTo(HaveOccurred())
				s.look(*f)
				Expect(e.store.Firings(ctx, store.FiringQuery{EffectID: given.EffectID})).To(HaveExactElements(*f))
				return *f
			}
			sameFields(given, read(), firingsSet)
			for _, end := range []store.FiringEnd{
				{Status: store.FiringPending, Waiting: "for room", RetryAfter: time.Second},
				{Status: store.FiringFailed, Error: "failed", Cost: 1.5, Log: "a line"},
			} {
				e.clock.Step(time.Hour)
				claim := read()
				claim.Attempts, claim.Epoch = claim.Attempts+1, claim.Epoch+1
				claimed, err := e.store.ClaimFirings(ctx, "me", time.Minute, map[string]int{given.Namespace: 1})
				Expect(err).NotTo(HaveOccurred())
				Expect(claimed).To(HaveExactElements(claim))
				read()
				end.Key, end.Namespace, end.Epoch = given.Key(), given.Namespace, claimed[0].Epoch
				Expect(e.store.FinishFiring(ctx, end)).To(Succeed())
				read()
			}
			s.expectAll(store.Firing{})
		})
	})
}
