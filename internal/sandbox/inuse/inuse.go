// Package inuse measures the memory of a process in which Go code compiles what others wrote. It is a package of its own because
// runtime/metrics takes a good part of a millisecond at the start of a program, and most children do not compile.
package inuse

import "runtime/metrics"

// Bytes returns how many bytes the Go runtime of this process holds.
func Bytes() int64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64() - samples[1].Value.Uint64())
}
