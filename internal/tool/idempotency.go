package tool

import "github.com/google/uuid"

// keySpace is where the keys of calls become idempotency keys.
var keySpace = uuid.MustParse("2f0f7a52-8a1e-4f3c-9f5c-52b7e6b1d9c4")

// IdempotencyKey of a call of a thread, for services that are asked on its behalf: the same when a crash has the call
// made again (RUN-02), and no other call's.
func IdempotencyKey(threadID, callID string) string {
	return uuid.NewSHA1(keySpace, []byte(threadID+"\x00"+callID)).String()
}
