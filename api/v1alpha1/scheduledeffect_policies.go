package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// EffectToolCall names a tool.
type EffectToolCall struct {
	// Name of the tool. For callTool it is the name of a Tool object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Method is the tool of the MCP server, for a Tool of kind mcp. A firing that names one for a Tool of kind http fails.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Method string `json:"method,omitempty"`
}

// EffectMessage is a message that is queued on a thread.
type EffectMessage struct {
	// Content of the message.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=262144
	Content string `json:"content"`

	// Silent messages are not shown to people.
	// +optional
	Silent bool `json:"silent,omitempty"`
}

// ThreadTemplate describes the Threads that a schedule creates.
type ThreadTemplate struct {
	// Labels of the Threads.
	// +kubebuilder:validation:MaxProperties=32
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// Annotations of the Threads.
	// +kubebuilder:validation:MaxProperties=32
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`

	// Spec of the Threads. It needs a message, without which nothing would run, and neither threadID nor forkFrom.
	// +kubebuilder:validation:XValidation:rule="has(self.message) && size(self.message) > 0",message="set message: a Thread without one does not run"
	// +kubebuilder:validation:XValidation:rule="!has(self.threadID)",message="leave out threadID: each Thread has its own"
	// +kubebuilder:validation:XValidation:rule="!has(self.forkFrom)",message="leave out forkFrom: forks are made by a person or program that may read the origin's conversation, not by a schedule"
	Spec ThreadSpec `json:"spec"`
}

// ScheduleExclusion is either a cron expression or a range of time.
// +kubebuilder:validation:XValidation:rule="has(self.schedule) != (has(self.start) && has(self.end)) && has(self.start) == has(self.end)",message="set schedule, such as \"* * 25 12 *\" for all minutes of a day, or start and end"
type ScheduleExclusion struct {
	// Schedule names the minutes at which nothing fires, by local time: a cron expression such as "* * 25 12 *".
	// +kubebuilder:validation:MaxLength=200
	// +optional
	Schedule string `json:"schedule,omitempty"`

	// Start of the range.
	// +optional
	Start *Timestamp `json:"start,omitempty"`

	// End of the range. A time that equals it fires.
	// +optional
	End *Timestamp `json:"end,omitempty"`
}

// ConcurrencyPolicy says what becomes of a firing that is due while an earlier one is under way.
// +kubebuilder:validation:Enum=Allow;Forbid;Replace;Queue
type ConcurrencyPolicy string

// The concurrency policies.
const (
	// ConcurrencyAllow lets both run.
	ConcurrencyAllow ConcurrencyPolicy = "Allow"
	// ConcurrencyForbid skips the new one, which is recorded.
	ConcurrencyForbid ConcurrencyPolicy = "Forbid"
	// ConcurrencyReplace cancels the earlier one, and deletes the Thread that it created.
	ConcurrencyReplace ConcurrencyPolicy = "Replace"
	// ConcurrencyQueue lets one wait until the earlier one has ended, and skips further ones, which is recorded.
	ConcurrencyQueue ConcurrencyPolicy = "Queue"
)

// CatchUp says what happens to due times that passed while no manager ran.
type CatchUp struct {
	// Policy: None skips them, Last fires the newest of them, All fires each.
	// +kubebuilder:validation:Enum=None;Last;All
	// +kubebuilder:default=Last
	// +optional
	Policy CatchUpPolicy `json:"policy,omitempty"`

	// Window is how far back it reaches; 24h when absent. Older due times are skipped.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('8784h')",message="give a duration from 10s to 8784h such as 24h"
	// +optional
	Window *metav1.Duration `json:"window,omitempty"`

	// Limit is how many due times All fires at most, the newest ones.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +kubebuilder:default=100
	// +optional
	Limit int32 `json:"limit,omitempty"`
}

// CatchUpPolicy says which missed due times fire.
type CatchUpPolicy string

// The catch-up policies.
const (
	CatchUpNone CatchUpPolicy = "None"
	CatchUpLast CatchUpPolicy = "Last"
	CatchUpAll  CatchUpPolicy = "All"
)

// EffectRetry says how often a firing that failed is tried again. Waiting for a sandbox or a definition is not an attempt.
type EffectRetry struct {
	// Attempts in all of a handler that failed: one when absent. A service that callTool calls: three when absent. A handler that
	// could not be run has at least three.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +optional
	Attempts int32 `json:"attempts,omitempty"`

	// Backoff before the second attempt; 1s when absent. It doubles with each attempt, and up to a tenth is added at random.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('100ms') && duration(self) <= duration('24h')",message="give a duration from 100ms to 24h such as 30s"
	// +optional
	Backoff *metav1.Duration `json:"backoff,omitempty"`

	// MaxBackoff bounds the delay between attempts; 10m when absent.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('100ms') && duration(self) <= duration('24h')",message="give a duration from 100ms to 24h such as 10m"
	// +optional
	MaxBackoff *metav1.Duration `json:"maxBackoff,omitempty"`

	// Statuses of HTTP answers after which callTool is tried again; 408, 425, 429 and all from 500 on when absent. Any other
	// answer that is not a success fails at once. When there is no answer, the call is tried again in any case.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:Minimum=300
	// +kubebuilder:validation:items:Maximum=599
	// +listType=set
	// +optional
	Statuses []int32 `json:"statuses,omitempty"`
}

// DailyLimit bounds what a schedule may do in a day. When a limit is reached, due times are skipped until the day ends.
type DailyLimit struct {
	// Firings a day. Those by hand do not count.
	// +kubebuilder:validation:Minimum=1
	// +optional
	Firings *int64 `json:"firings,omitempty"`

	// Cost a day of the threads that its threadTemplate created, in US dollars: of a firing that is under way what its thread has cost so
	// far, and of one that has ended or was canceled what it had cost by then. The cost of firings by hand counts.
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[0-9]+([.][0-9]{1,9})?$')`,message="write an amount such as \"2.50\""
	// +kubebuilder:validation:MaxLength=20
	// +optional
	Cost *string `json:"cost,omitempty"`
}
