// Package audited records requests that reach threads other than through the runtime API, by the same policy and in the same
// log (K8S-12).
package audited

import (
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	authnv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// Group is the group of all users of such requests.
const Group = "skein:outside"

// The annotations and extra fields of entries.
const (
	// ExtraUser is the user whom a trusted proxy names.
	ExtraUser = "skein.dev/end-user"
	// AnnotationLeftOut is how many refusals before this one have no entry.
	AnnotationLeftOut = "skein.dev/left-out"
)

// Entry is a request that has been answered.
type Entry struct {
	ID       string // of the request; no other one has it
	Received time.Time
	// Who asked, as users are called in audit policies.
	Who string
	// User is the end user, or "".
	User                  string
	Verb                  string
	Namespace, Thread     string // Thread is "" while it is not known
	Subresource           string
	Path, From, UserAgent string
	Code                  int
}

// Auditor records entries. It is safe for concurrent use, and a nil Auditor records nothing.
type Auditor struct {
	backend  audit.Backend
	policy   audit.PolicyRuleEvaluator
	refusals *rate.Limiter
	leftOut  atomic.Int64
}

// These limit the refusals of unknown callers that are recorded in a second. Otherwise any stranger could fill the log.
const (
	refusalRate  = 10
	refusalBurst = 100
)

// New returns an Auditor, or nil when nothing is recorded.
func New(backend audit.Backend, policy audit.PolicyRuleEvaluator) *Auditor {
	if backend == nil || policy == nil {
		return nil
	}
	return &Auditor{backend: backend, policy: policy, refusals: rate.NewLimiter(refusalRate, refusalBurst)}
}

// maxText bounds what of a request an entry repeats.
const maxText = 1 << 10

// Record records an entry, if the policy wants it. Of refusals it records only as many a second as a.refusals allows. The next
// one that is recorded says how many were left out.
func (a *Auditor) Record(e *Entry) {
	if a == nil {
		return
	}
	who := &user.DefaultInfo{Name: e.Who, Groups: []string{Group}}
	config := a.policy.EvaluatePolicyRule(authorizer.AttributesRecord{
		User: who, Verb: e.Verb, Namespace: e.Namespace, APIGroup: runtimev1.GroupVersion.Group, APIVersion: runtimev1.GroupVersion.Version,
		Resource: "threads", Subresource: e.Subresource, Name: e.Thread, ResourceRequest: true, Path: e.Path,
	})
	if config.Level == auditinternal.LevelNone || slices.Contains(config.OmitStages, auditinternal.StageResponseComplete) {
		return
	}
	var annotations map[string]string
	if e.Code == http.StatusTooManyRequests || e.Code == http.StatusNotFound || e.Code == http.StatusUnauthorized {
		if !a.refusals.Allow() {
			a.leftOut.Add(1)
			return
		}
		if n := a.leftOut.Swap(0); n > 0 {
			annotations = map[string]string{AnnotationLeftOut: strconv.FormatInt(n, 10)}
		}
	}
	info := authnv1.UserInfo{Username: who.Name, Groups: who.Groups}
	if e.User != "" {
		info.Extra = map[string]authnv1.ExtraValue{ExtraUser: {e.User}}
	}
	a.backend.ProcessEvents(&auditinternal.Event{
		Level: auditinternal.LevelMetadata, AuditID: types.UID(e.ID), Stage: auditinternal.StageResponseComplete,
		RequestURI: clip(e.Path), Verb: e.Verb, User: info, SourceIPs: []string{e.From}, UserAgent: clip(e.UserAgent),
		ObjectRef: &auditinternal.ObjectReference{
			APIGroup: runtimev1.GroupVersion.Group, APIVersion: runtimev1.GroupVersion.Version, Resource: "threads", Subresource: e.Subresource,
			Namespace: e.Namespace, Name: e.Thread,
		},
		ResponseStatus:           &metav1.Status{Code: int32(e.Code)},
		RequestReceivedTimestamp: metav1.NewMicroTime(e.Received), StageTimestamp: metav1.NewMicroTime(time.Now()), Annotations: annotations,
	})
}

func clip(s string) string { return s[:min(len(s), maxText)] }
