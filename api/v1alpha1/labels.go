package v1alpha1

// Labels and annotations that Skein sets or reads.
const (
	// LabelManagedBy is the recommended label; runtime children carry the value below so that pruning spares them.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// ManagedByValue is the value of LabelManagedBy on every object that the runtime makes.
	ManagedByValue = "skein"
	// LabelThread holds the name of the Thread that an object belongs to.
	LabelThread = "skein.dev/thread"
	// LabelThreadID holds the id (UUID) of the thread that an object belongs to.
	LabelThreadID = "skein.dev/thread-id"
	// LabelRootThread holds the id of the outermost ancestor.
	LabelRootThread = "skein.dev/root-thread-id"
	// LabelPool holds the name of the SandboxPool of a pod.
	LabelPool = "skein.dev/sandbox-pool"
	// LabelSandboxState is "warm" or "claimed".
	LabelSandboxState = "skein.dev/sandbox-state"
	// LabelTemplateHash distinguishes sandbox pods of an old template from those of the present one.
	LabelTemplateHash = "skein.dev/template-hash"
	// AnnotationRetain, with the value true, keeps the data of a Thread that is deleted, like spec.deletionPolicy: Retain.
	AnnotationRetain = "skein.dev/retain"
	// AnnotationRestoring keeps the controllers from acting on a Thread, Subagent or ScheduledEffect until a restore has made all
	// objects. Its value is the id of the backup.
	AnnotationRestoring = "skein.dev/restoring"
	// AnnotationRestored holds the id of the backup that an object was restored from.
	AnnotationRestored = "skein.dev/restored"
	// AnnotationIdempotencyKey holds what caused an object, so that a repeated create is recognised.
	AnnotationIdempotencyKey = "skein.dev/cause"
	// AnnotationForkPoint holds the message at which the runtime API was asked to fork: the id of its thread, a slash, and its number in
	// the log of that thread. spec.forkFrom is not enough: its index means another message once earlier messages were removed, and its
	// name may come to mean another thread.
	AnnotationForkPoint = "skein.dev/fork-point"
	// AnnotationEnvSealedUnder is on the Secret with the keys that seal variables. It is the id of the primary key once no value remains
	// under another one, so that the other keys can be removed.
	AnnotationEnvSealedUnder = "skein.dev/env-sealed-under"
	// AnnotationRunAt asks a ScheduledEffect to fire now. Its value is the present time, perhaps with a slash and a key. A repeat
	// with the same key, or with the same time when there is none, does not fire again. Commas separate several requests.
	AnnotationRunAt = "skein.dev/run-at"
	// AnnotationBackfill asks a ScheduledEffect to fire the due times of a past range, FROM/UNTIL, that did not fire. A slash and
	// a key may follow: a repeat with the same key does nothing. Commas separate several ranges.
	AnnotationBackfill = "skein.dev/backfill"
	// AnnotationResume resumes a schedule that was paused after failures. The failures are counted from 0 again. Its value may be
	// any text.
	AnnotationResume = "skein.dev/resume"
	// Finalizer holds a Thread until its stored data is purged.
	Finalizer = "skein.dev/purge"
	// DefaultPoolName is the SandboxPool that agents use when they name none.
	DefaultPoolName = "default"
)
