// Package ids makes, checks and signs the ids by which end users reach their threads, and finds the one that a request
// means (docs/adr/0052-a-gateway-for-end-users.md).
package ids
