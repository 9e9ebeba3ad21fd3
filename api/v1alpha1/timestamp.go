package v1alpha1

import (
	"encoding/json"
	"fmt"
	"time"
)

// timestampLayout is what Timestamps are written as: UTC, in microseconds, as metav1.MicroTime is.
const timestampLayout = "2006-01-02T15:04:05.000000Z07:00"

// Timestamp is a time in RFC 3339, with or without a fraction of a second, such as 2027-01-31T09:00:00Z. metav1.Time drops
// the fraction, and metav1.MicroTime cannot decode a time without one.
// +kubebuilder:object:generate=false
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:MaxLength=64
type Timestamp struct{ time.Time }

// NewTimestamp returns t as a Timestamp, in microseconds.
func NewTimestamp(t time.Time) Timestamp { return Timestamp{t.Truncate(time.Microsecond)} }

// UnmarshalJSON implements json.Unmarshaler. The error says what to write.
func (t *Timestamp) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		t.Time = time.Time{}
		return nil
	}
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return badTimestamp(string(data))
	}
	parsed, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return badTimestamp(fmt.Sprintf("%q", s))
	}
	t.Time = parsed
	return nil
}

func badTimestamp(text string) error {
	return fmt.Errorf("%s is not a time: use one such as 2027-01-31T09:00:00Z", text)
}

// MarshalJSON implements json.Marshaler.
func (t Timestamp) MarshalJSON() ([]byte, error) {
	if t.IsZero() {
		return []byte("null"), nil
	}
	return json.Marshal(t.UTC().Format(timestampLayout))
}

// ToUnstructured implements the converter of apimachinery.
func (t Timestamp) ToUnstructured() any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format(timestampLayout)
}

// DeepCopyInto copies t into out.
func (t *Timestamp) DeepCopyInto(out *Timestamp) { *out = *t }

// DeepCopy returns a copy of t.
func (t *Timestamp) DeepCopy() *Timestamp {
	if t == nil {
		return nil
	}
	out := *t
	return &out
}

// Equal reports whether both are the same instant, or both nil.
func (t *Timestamp) Equal(u *Timestamp) bool {
	if t == nil || u == nil {
		return t == u
	}
	return t.Time.Equal(u.Time)
}
