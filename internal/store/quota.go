package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// QuotaResource is something of which a namespace may have a limited amount (K8S-11).
type QuotaResource string

// The resources. Their names are those of the fields of ThreadQuota.spec.hard.
const (
	QuotaThreads        QuotaResource = "threads"        // stored conversations, with those that are retained
	QuotaRunningThreads QuotaResource = "runningThreads" // threads that a replica works on
	QuotaBytes          QuotaResource = "bytes"          // files of threads
	QuotaMessageBytes   QuotaResource = "messageBytes"   // messages of threads
	QuotaTokens         QuotaResource = "tokensPerDay"   // of model calls since midnight UTC
	QuotaCost           QuotaResource = "costPerDay"     // the same in billionths of a US dollar
	QuotaEffects        QuotaResource = "pendingEffects" // ScheduledEffects that have not ended
)

// QuotaLimit is how much of a resource a namespace may have.
type QuotaLimit struct {
	Hard int64
	// By says who set the limit, for people: ThreadQuota "team" or the flag of the manager.
	By string
}

// Quotas are the limits of a namespace. A resource that is not among them has no limit.
type Quotas map[QuotaResource]QuotaLimit

// QuotaAmount returns an amount of a resource for people.
func QuotaAmount(r QuotaResource, n int64) string {
	if r != QuotaCost {
		return strconv.FormatInt(n, 10)
	}
	text := fmt.Sprintf("%d.%09d", n/1_000_000_000, n%1_000_000_000)
	return strings.TrimRight(strings.TrimRight(text, "0"), ".")
}

// NamespaceQuotaError says that a namespace has used up a quota.
type NamespaceQuotaError struct {
	Namespace string
	Resource  QuotaResource
	QuotaLimit
}

// Error implements error.
func (e *NamespaceQuotaError) Error() string {
	what, remedy := "", ""
	switch e.Resource {
	case QuotaThreads:
		what, remedy = "threads", "delete Threads, and retained data with kubectl skein retained"
	case QuotaRunningThreads:
		what, remedy = "threads that run at once", "wait until one of them rests, or stop one"
	case QuotaBytes:
		what, remedy = "bytes of files", "delete files or Threads"
	case QuotaMessageBytes:
		what, remedy = "bytes of messages", "delete messages or Threads, and retained data with kubectl skein retained"
	case QuotaTokens:
		what, remedy = "tokens a day", "wait until midnight UTC"
	case QuotaCost:
		what, remedy = "US dollars a day", "wait until midnight UTC"
	case QuotaEffects:
		what, remedy = "ScheduledEffects that have not ended", "wait until some have ended, or remove them"
	}
	return fmt.Sprintf("namespace %q has used up its quota of %s %s (%s): %s, or ask an administrator for more",
		e.Namespace, QuotaAmount(e.Resource, e.Hard), what, e.By, remedy)
}

// Is reports whether target is ErrQuota.
func (e *NamespaceQuotaError) Is(target error) bool { return target == ErrQuota }

// QuotaStore holds namespaces to their quotas, over all replicas.
type QuotaStore interface {
	// LimitNamespaces sets what returns the quotas of a namespace. It is called within transactions, so it must not
	// block. Transactions that would exceed a quota of threads or bytes fail with a *NamespaceQuotaError, and so do those of clients that
	// would exceed one of bytes of messages (see AppendMessage, UpdateMessage, Enqueue and ImportConversation). Usage counts against the
	// quotas of tokens and cost while there are any.
	LimitNamespaces(of func(namespace string) Quotas)
	// QuotaUse returns how much a namespace uses of some resources; without any, of all that the store knows, which are all but effects.
	QuotaUse(ctx context.Context, namespace string, of ...QuotaResource) (map[QuotaResource]int64, error)
	// CountRunning counts the holder of a lease as a running thread, until the lease ends. It fails with a
	// *NamespaceQuotaError when the namespace has as many already, and with ErrFenced when the lease was lost.
	CountRunning(ctx context.Context, f *Fence) error
	// ClaimQuota reserves room for an object of Kubernetes that is about to be created. It fails with a
	// *NamespaceQuotaError when there is none. A repeat with the same name changes nothing.
	ClaimQuota(ctx context.Context, c QuotaClaim) error
	// ReleaseQuota gives up the room for an object that was not created.
	ReleaseQuota(ctx context.Context, namespace string, resource QuotaResource, name string) error
	// SweepQuotas removes claims that have expired, and usage of days before the day before. It counts the messages that are not counted
	// yet because they are older than the counting, or because an earlier release has restored them.
	SweepQuotas(ctx context.Context) error
}

// QuotaClaim reserves room in a quota.
type QuotaClaim struct {
	Namespace string
	Resource  QuotaResource
	Name      string // of the object
	Limit     QuotaLimit
	// TTL is how long the claim counts. By then every replica's cache has shown the object.
	TTL time.Duration
	// Count returns how many objects there are: those that the caller's cache shows, and those of claimed that it does
	// not know. It may be called several times, and must not block.
	Count func(claimed []string) int64
}

// AwaitQuota records what a thread waits for because its namespace has used up a quota; "" when it waits no longer.
type AwaitQuota struct{ Message string }

func (*AwaitQuota) op() {}
