package tool

import "github.com/google/uuid"

// keySpace is the UUID namespace of idempotency keys that are derived from calls.
var keySpace = uuid.MustParse("2f0f7a52-8a1e-4f3c-9f5c-52b7e6b1d9c4")

// IdempotencyKey returns the key of a call for services that are called on its behalf. It is the same when the call is
// repeated after a crash (RUN-02), and differs from the key of every other call.
func IdempotencyKey(threadID, callID string) string {
	return uuid.NewSHA1(keySpace, []byte(threadID+"\x00"+callID)).String()
}
