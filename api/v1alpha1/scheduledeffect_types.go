package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ScheduledEffectSpec says what happens when, and for which threads.
// +kubebuilder:validation:XValidation:rule="(has(self.at)?1:0)+(has(self.after)?1:0)+(has(self.schedules)?1:0) == 1",message="set exactly one of at (a time such as 2027-01-31T09:00:00Z), after (a delay from the object's creation, such as 10m) and schedules (such as \"30 9 * * MON-FRI\")"
// +kubebuilder:validation:XValidation:rule="(has(self.effect)?1:0)+(has(self.callTool)?1:0)+(has(self.queueTool)?1:0)+(has(self.message)?1:0)+(has(self.threadTemplate)?1:0) == 1",message="set exactly one of effect, callTool, queueTool, message and threadTemplate"
// +kubebuilder:validation:XValidation:rule="!has(self.threadRef) || !has(self.threadSelector)",message="set threadRef or threadSelector, not both"
// +kubebuilder:validation:XValidation:rule="!(has(self.message) || has(self.queueTool)) || has(self.threadRef) || has(self.threadSelector)",message="message and queueTool need a thread: set threadRef or threadSelector"
// +kubebuilder:validation:XValidation:rule="!(has(self.callTool) || has(self.threadTemplate)) || !(has(self.threadRef) || has(self.threadSelector))",message="callTool and threadTemplate have no thread to work on: leave out threadRef and threadSelector"
// +kubebuilder:validation:XValidation:rule="!(has(self.sandboxPool) || has(self.env)) || (has(self.effect) && !has(self.threadRef) && !has(self.threadSelector))",message="sandboxPool and env are for an effect without a thread: a thread has its own"
// +kubebuilder:validation:XValidation:rule="has(self.schedules) || !(has(self.timeZone) || has(self.exclusions) || has(self.startTime) || has(self.endTime) || has(self.maxFirings) || has(self.runOnCreation) || has(self.catchUp) || has(self.dailyLimit) || has(self.pauseAfterFailures))",message="timeZone, exclusions, startTime, endTime, maxFirings, runOnCreation, catchUp, dailyLimit and pauseAfterFailures are for schedules: leave them out, or set schedules instead of at and after"
// +kubebuilder:validation:XValidation:rule="!has(self.dailyLimit) || !has(self.dailyLimit.cost) || has(self.threadTemplate)",message="dailyLimit.cost counts the threads of threadTemplate: set dailyLimit.firings for everything else"
// +kubebuilder:validation:XValidation:rule="!has(self.retry) || !has(self.retry.statuses) || has(self.callTool)",message="retry.statuses are statuses of HTTP answers: leave it out, or set callTool"
// +kubebuilder:validation:XValidation:rule="!(has(self.retry) && has(self.threadTemplate)) || (oldSelf.hasValue() && has(oldSelf.value().retry) && has(oldSelf.value().threadTemplate))",optionalOldSelf=true,message="retry is for attempts, and the Thread of a threadTemplate is the only one: leave retry out"
// +kubebuilder:validation:XValidation:rule="has(self.schedules) == has(oldSelf.schedules)",message="a one-time effect cannot become a schedule, nor the reverse: delete it and create another"
// +kubebuilder:validation:XValidation:rule="has(self.schedules) || (has(self.at) == has(oldSelf.at) && (!has(self.at) || self.at == oldSelf.at) && (!has(self.after) || self.after == oldSelf.after) && has(self.effect) == has(oldSelf.effect) && (!has(self.effect) || self.effect == oldSelf.effect) && has(self.args) == has(oldSelf.args) && (!has(self.args) || self.args == oldSelf.args))",message="time, effect and args of a one-time effect cannot be changed: delete it and create another"
// +kubebuilder:validation:XValidation:rule="has(self.threadRef) == has(oldSelf.threadRef) && (!has(self.threadRef) || self.threadRef == oldSelf.threadRef)",message="threadRef cannot be changed: delete the ScheduledEffect and create another"
type ScheduledEffectSpec struct {
	// ThreadRef names the Thread for which it fires. The ScheduledEffect is deleted with that Thread. When threadRef and
	// threadSelector are absent, it fires for no thread.
	// +optional
	ThreadRef *LocalRef `json:"threadRef,omitempty"`

	// ThreadSelector selects Threads of the namespace by their labels. At each due time it fires once for each of them.
	// +optional
	ThreadSelector *metav1.LabelSelector `json:"threadSelector,omitempty"`

	// MaxThreads bounds how many threads one due time fires for. Threads beyond it, by name, are skipped, which is recorded.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	// +kubebuilder:default=100
	// +optional
	MaxThreads int32 `json:"maxThreads,omitempty"`

	// ThreadsPerSecond is how many of the selected threads it starts with in a second.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +kubebuilder:default=20
	// +optional
	ThreadsPerSecond int32 `json:"threadsPerSecond,omitempty"`

	// Effect to fire: the name of an Effect, or package/effect.
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[a-zA-Z0-9_.-]+(/[a-zA-Z0-9_.-]+)?$')`,message="write the name of an Effect, such as remind, or package/effect: letters, digits, _, . and -"
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Effect string `json:"effect,omitempty"`

	// CallTool calls a Tool of kind http or mcp, without a thread.
	// +optional
	CallTool *EffectToolCall `json:"callTool,omitempty"`

	// QueueTool queues a call of a tool on the thread. The tool is one of the thread's agent.
	// +optional
	QueueTool *EffectToolCall `json:"queueTool,omitempty"`

	// Message queues a message on the thread, which makes its agent answer.
	// +optional
	Message *EffectMessage `json:"message,omitempty"`

	// ThreadTemplate creates a Thread. Its name is that of this object, followed by the due time: the minutes since 1970 when it is a whole
	// minute, else the microseconds, as for each firing by hand. The firing ends when the thread's first run ends.
	// +optional
	ThreadTemplate *ThreadTemplate `json:"threadTemplate,omitempty"`

	// Args for the effect or the tool, an object.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +optional
	Args *runtime.RawExtension `json:"args,omitempty"`

	// ArgsRef names arguments that Skein keeps outside of this object, since code or a model gave them. Skein sets it; set
	// args in what you declare yourself.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ArgsRef string `json:"argsRef,omitempty"`

	// SandboxPool in which an effect without a thread runs; the pool named default when absent.
	// +optional
	SandboxPool *LocalRef `json:"sandboxPool,omitempty"`

	// Env are the variables of an effect without a thread, which its code reads with state.env.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:XValidation:rule="self.all(e, (has(e.value) || has(e.valueFrom)) && !has(e.scoped) && !has(e.required))",message="a variable needs value or valueFrom, and neither scoped nor required, which are for Agents and Prompts"
	// +optional
	Env []EnvVar `json:"env,omitempty"`

	// At is the due time, in RFC 3339, such as 2027-01-31T09:00:00Z. A fraction of a second may follow the seconds.
	// +optional
	At *Timestamp `json:"at,omitempty"`

	// After is the delay from the object's creation, up to a year; "0s" fires at once.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('8760h')",message="give a delay from 0s, which is now, to 8760h, which is a year, or set at"
	// +optional
	After *metav1.Duration `json:"after,omitempty"`

	// Schedules at whose times it fires. Each is a cron expression with five fields such as "30 9 * * MON-FRI", a name such
	// as @hourly, @daily or @weekly, or an interval such as "@every 10m" or, with an offset, "@every 1h/15m". A time that
	// several name fires once.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MaxLength=200
	// +kubebuilder:validation:XValidation:rule=`self.all(s, s.matches('^\\s*(@[a-z]+(\\s+[0-9a-zµ./]+)?|[^\\s@]+\\s+[^\\s]+\\s+[^\\s]+\\s+[^\\s]+\\s+[^\\s]+)\\s*$'))`,message="write a cron expression with five fields (minute, hour, day of the month, month, day of the week) such as 30 9 * * MON-FRI, a name such as @hourly, or @every with an interval such as @every 10m"
	// +listType=atomic
	// +optional
	Schedules []string `json:"schedules,omitempty"`

	// TimeZone of schedules and exclusions: a name of the IANA database such as Europe/Berlin; UTC when absent.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	TimeZone string `json:"timeZone,omitempty"`

	// Exclusions are times at which it does not fire, such as a planned downtime.
	// +kubebuilder:validation:MaxItems=50
	// +listType=atomic
	// +optional
	Exclusions []ScheduleExclusion `json:"exclusions,omitempty"`

	// StartTime is the earliest time at which schedules fire.
	// +optional
	StartTime *Timestamp `json:"startTime,omitempty"`

	// EndTime is the latest time at which schedules fire.
	// +optional
	EndTime *Timestamp `json:"endTime,omitempty"`

	// MaxFirings is how often schedules fire in all. Firings by hand do not count.
	// +kubebuilder:validation:Minimum=1
	// +optional
	MaxFirings *int64 `json:"maxFirings,omitempty"`

	// RunOnCreation fires once when the object is created, beside the schedules.
	// +optional
	RunOnCreation bool `json:"runOnCreation,omitempty"`

	// Jitter delays each firing by up to so long. The delay is the same for each firing of this object.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('24h')",message="give a duration up to 24h such as 30s"
	// +optional
	Jitter *metav1.Duration `json:"jitter,omitempty"`

	// StartingDeadlineSeconds is how late a firing may be. Later ones are skipped, which is recorded. There is no limit when it is absent.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=315360000
	// +optional
	StartingDeadlineSeconds *int64 `json:"startingDeadlineSeconds,omitempty"`

	// Suspend skips due times while it is true. What is under way continues.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// ConcurrencyPolicy says what happens to a firing that is due while an earlier one of the same thread is under way.
	// +kubebuilder:default=Allow
	// +optional
	ConcurrencyPolicy ConcurrencyPolicy `json:"concurrencyPolicy,omitempty"`

	// CatchUp says what happens to due times that passed while no manager ran.
	// +optional
	CatchUp *CatchUp `json:"catchUp,omitempty"`

	// Retry says how often a firing that failed is tried again. It is not for threadTemplate, whose firings have one Thread each.
	// +optional
	Retry *EffectRetry `json:"retry,omitempty"`

	// Timeout of one attempt, from the moment at which its handler begins or its Tool is called. That of the Effect or the Tool when absent.
	// A firing of a threadTemplate fails when the first run of its Thread has not ended so long after the creation of the Thread, which is
	// then terminated. Without a timeout there is no limit.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="give a duration from 1s to 24h such as 5m"
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// PauseAfterFailures pauses the schedule after so many failures in a row. It continues when it is resumed with
	// "kubectl skein effect resume", when a firing by hand succeeds, or when its schedule is changed.
	// +kubebuilder:validation:Minimum=1
	// +optional
	PauseAfterFailures *int32 `json:"pauseAfterFailures,omitempty"`

	// DailyLimit bounds what the schedule may do in a day of its time zone. Firings by hand pass it.
	// +optional
	DailyLimit *DailyLimit `json:"dailyLimit,omitempty"`

	// SuccessfulHistoryLimit is how many firings that succeeded are kept.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +kubebuilder:default=10
	// +optional
	SuccessfulHistoryLimit *int32 `json:"successfulHistoryLimit,omitempty"`

	// FailedHistoryLimit is how many firings that failed, and how many records of skipped times, are kept.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +kubebuilder:default=10
	// +optional
	FailedHistoryLimit *int32 `json:"failedHistoryLimit,omitempty"`

	// HookDepth is how many hooks, each caused by the one before, led to this effect. Skein sets it on what code schedules, so
	// that hooks and effects cannot keep causing each other; leave it out of what you declare yourself.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +optional
	HookDepth int32 `json:"hookDepth,omitempty"`

	// TTLSecondsAfterFinished is how long after the end of its last firing the object is deleted. When it is absent, that
	// is 300 for at and after, and an object with schedules is kept.
	// +kubebuilder:validation:Minimum=0
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// ScheduledEffectStatus is the state of a ScheduledEffect.
type ScheduledEffectStatus struct {
	// ObservedGeneration is the generation that the conditions are about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Phase in one word. It is Pending, Fired, Succeeded, Failed, Canceled or Unknown for an effect of one time and one thread
	// without policies that was never asked to fire by hand. It is Pending at first, then Active, Suspended, Paused, LimitReached,
	// Finished or Canceled for all others, also those of one time.
	// +optional
	Phase string `json:"phase,omitempty"`

	// ScheduledAt is the due time in microseconds since 1970; of a schedule the next one, 0 if there is none.
	// +optional
	ScheduledAt int64 `json:"scheduledAt,omitempty"`

	// FiredAt is when the firing was recorded, in microseconds since 1970; of a schedule the newest one.
	// +optional
	FiredAt int64 `json:"firedAt,omitempty"`

	// NextTime is the next due time that can fire. While the daily limit is reached, it is one of a later day. While the schedule is
	// suspended, it may be up to a minute after the next due time: the ones before it are recorded then.
	// +optional
	NextTime *metav1.Time `json:"nextTime,omitempty"`

	// LastTime is the due time of the newest firing.
	// +optional
	LastTime *metav1.Time `json:"lastTime,omitempty"`

	// LastOutcome of the firing that ended last: Succeeded, Failed or Canceled.
	// +optional
	LastOutcome string `json:"lastOutcome,omitempty"`

	// Active is how many firings are under way.
	// +optional
	Active int32 `json:"active,omitempty"`

	// Fired is how many due times of the schedules have fired, as maxFirings counts them. Firings by hand do not count.
	// +optional
	Fired int64 `json:"fired,omitempty"`

	// Skipped is how many due times did not fire.
	// +optional
	Skipped int64 `json:"skipped,omitempty"`

	// LastSkip is the newest record of due times that did not fire.
	// +optional
	LastSkip *EffectSkip `json:"lastSkip,omitempty"`

	// Requests are the newest requests by hand that were answered, the newest last, and what became of each.
	// +listType=atomic
	// +optional
	Requests []EffectRequest `json:"requests,omitempty"`

	// CompletionTime of the last firing.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// Conditions: Ready, Fired, Complete.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// EffectSkip is a record of due times that did not fire.
type EffectSkip struct {
	// Time is the first due time.
	Time metav1.Time `json:"time"`
	// Until is the last due time.
	Until metav1.Time `json:"until"`
	// Count of the due times.
	Count int64 `json:"count"`
	// Reason: Missed, Suspended, Forbidden, LimitReached, Paused, TooManyThreads or NoThreadMatches.
	Reason string `json:"reason"`
}

// EffectRequest is a request by hand, and what became of it.
type EffectRequest struct {
	// Request as it stood in the annotation: a time or a range, with its key if it has one.
	Request string `json:"request"`
	// AnsweredAt is when Skein answered it.
	AnsweredAt metav1.Time `json:"answeredAt"`
	// Repeated says that an earlier request with the same key was answered so, and that this one did nothing.
	// +optional
	Repeated bool `json:"repeated,omitempty"`
	// Refused says why the request as a whole was refused. It has no results then.
	// +optional
	Refused string `json:"refused,omitempty"`
	// Results say what became of the due times, in their order.
	// +listType=atomic
	// +optional
	Results []EffectRequestResult `json:"results,omitempty"`
}

// Outcomes of the due times that a request by hand asked for.
const (
	// RequestFired: the firing is recorded. The history says how it ends.
	RequestFired = "Fired"
	// RequestQueued: the firing is recorded, and waits until an earlier one has ended.
	RequestQueued = "Queued"
	// RequestFiredBefore: the due time had fired already, and does not fire again.
	RequestFiredBefore = "FiredBefore"
	// RequestSkipped: nothing fires; the reason says why.
	RequestSkipped = "Skipped"
)

// EffectRequestResult is what became of due times in a row. Where one due time fires for several threads, each counts.
type EffectRequestResult struct {
	// Time is the first due time.
	Time metav1.MicroTime `json:"time"`
	// Until is the last due time.
	Until metav1.MicroTime `json:"until"`
	// Count of the due times.
	Count int64 `json:"count"`
	// Outcome: Fired, Queued, FiredBefore or Skipped.
	Outcome string `json:"outcome"`
	// Reason why they were skipped: Forbidden, LimitReached or TooManyThreads.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message says more, for people.
	// +optional
	Message string `json:"message,omitempty"`
}

// ScheduledEffect fires an effect, a message, a tool or a new Thread once or on schedules, for one thread, for many or
// for none. Its id is the object's UID.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=sef,categories=skein
// +kubebuilder:printcolumn:name="Thread",type=string,JSONPath=`.spec.threadRef.name`
// +kubebuilder:printcolumn:name="Effect",type=string,JSONPath=`.spec.effect`
// +kubebuilder:printcolumn:name="Schedule",type=string,JSONPath=`.spec['schedules','at','after']`
// +kubebuilder:printcolumn:name="Next",type=string,JSONPath=`.status.nextTime`
// +kubebuilder:printcolumn:name="Last",type=date,JSONPath=`.status.lastTime`
// +kubebuilder:printcolumn:name="Active",type=integer,JSONPath=`.status.active`
// +kubebuilder:printcolumn:name="Outcome",type=string,JSONPath=`.status.lastOutcome`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ScheduledEffect struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Decoding          `json:"-"`

	Spec ScheduledEffectSpec `json:"spec"`

	// Status as the controller last wrote it. Its observedGeneration is -1 until then. What code has scheduled for one time keeps this
	// first status until it fires, unless something is wrong.
	// +kubebuilder:default:={"observedGeneration":-1,"phase":"Pending"}
	// +optional
	Status ScheduledEffectStatus `json:"status,omitempty"`
}

// ScheduledEffectList is a list of ScheduledEffects.
// +kubebuilder:object:root=true
type ScheduledEffectList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ScheduledEffect `json:"items"`
}
