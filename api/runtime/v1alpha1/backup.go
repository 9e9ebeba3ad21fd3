package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// The answer of GET backups is a tar archive. It has files with rows, as lines of JSON (BackupRow), then the contents of files, then the
// summary. An archive without the summary was cut off.
const (
	// BackupRowsPrefix is the folder of files with rows.
	BackupRowsPrefix = "rows/"
	// BackupContentsPrefix is the folder of contents. The name of each is its SHA-256 in hex.
	BackupContentsPrefix = "contents/"
	// BackupSummaryFile is the name of the summary, a BackupSummary.
	BackupSummaryFile = "summary.json"
)

// MaxRestoreRowsBytes is the maximum size of a body of restores/{backup}/rows.
const MaxRestoreRowsBytes = 64 << 20

// MediaTypeTar is the media type of a tar archive.
const MediaTypeTar = "application/x-tar"

// BackupSummary says what the backup of a namespace has.
type BackupSummary struct {
	metav1.TypeMeta `json:",inline"`
	// Namespace that was backed up.
	Namespace string `json:"namespace"`
	// Schema is the version of the database's schema.
	Schema int64 `json:"schema"`
	// At is when the rows were read, all at one moment, in microseconds.
	At int64 `json:"at"`
	// Rows is the number of rows by table.
	Rows map[string]int64 `json:"rows"`
	// Contents is the number of contents of files.
	Contents int `json:"contents"`
	// KeyIDs are the keys under which variables are sealed.
	KeyIDs []uint32 `json:"keyIDs,omitempty"`
}

// KindBackupSummary is the kind of a BackupSummary.
const KindBackupSummary = "BackupSummary"

// RestorePlan begins the restore of a backup into a namespace.
type RestorePlan struct {
	// Backup is the id of the backup. Repeats of a restore have the same.
	Backup string `json:"backup"`
	// Schema is that of the backup.
	Schema int64 `json:"schema"`
	// Threads are the ids of the threads in the backup; at most 10,000 of them in one request.
	Threads []string `json:"threads,omitempty"`
	// KeyIDs are those of the backup.
	KeyIDs []uint32 `json:"keyIDs,omitempty"`
}

// RestoreState says how far a restore has come.
type RestoreState struct {
	metav1.TypeMeta `json:",inline"`
	// Staged is the number of threads whose rows have arrived, and which are not visible yet.
	Staged int64 `json:"staged"`
	// Restored is the number of threads that are visible, but for those that were retained when the backup was made.
	Restored int64 `json:"restored"`
	// Finished reports whether what was restored is visible. It is not known of a backup without threads.
	Finished bool `json:"finished,omitempty"`
	// Effects reports whether rows of ScheduledEffects wait for their new objects.
	Effects bool `json:"effects,omitempty"`
}

// KindRestoreState is the kind of a RestoreState.
const KindRestoreState = "RestoreState"

// RestoreFinish makes a restore visible.
type RestoreFinish struct {
	// Rows is the number of rows by table, from the summary. The restore fails unless as many have arrived.
	Rows map[string]int64 `json:"rows"`
}

// RestoreEffects gives firings to new ScheduledEffects.
type RestoreEffects struct {
	// Effects maps the UIDs in the backup to those of the new objects. What other effects fired is not restored.
	Effects map[string]string `json:"effects"`
}
