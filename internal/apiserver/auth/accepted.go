package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/skein-dev/skein/internal/apiserver/flow"
)

const (
	// acceptedFor is how long a token is remembered after it was accepted. Tokens of service accounts are replaced about once an hour.
	acceptedFor = time.Hour
	// maxAccepted bounds how many tokens are remembered, which takes two or three megabytes.
	maxAccepted = 10_000
)

// acceptedTokens remembers who sent tokens that the API server accepted. It only chooses the semaphore in which the
// review of a token waits, and does not replace that review. A token whose cached answer has expired, or that was revoked, is reviewed as any other.
//
// So made-up tokens do not delay clients whose tokens were accepted by this process in the last hour. They do delay clients of the same address
// whose tokens it does not know: after a restart, and when a client starts or gets a new token. Nothing that the server can read without the
// API server tells such a token from a made-up one. The claims of a
// token do not help before the token is verified. A client can put any name into a made-up token. With a new name in each token it would get a new
// semaphore each time. With the name of one user it would delay that user.
//
// The tokens that were used last are kept. A user who has thousands of tokens accepted can make the process forget those of others,
// which then wait as unknown ones do.
type acceptedTokens struct {
	key   []byte                // so that the hashes cannot be compared with those of known tokens
	names *cache.LRUExpireCache // by the hash of a token, under which name the requests of its user are counted
}

// newAcceptedTokens returns an empty record of accepted tokens, with a key of its own for their hashes.
func newAcceptedTokens() *acceptedTokens {
	a := &acceptedTokens{key: make([]byte, sha256.Size), names: cache.NewLRUExpireCache(maxAccepted)}
	_, _ = rand.Read(a.key) // never fails
	return a
}

func (a *acceptedTokens) hash(token string) (h [sha256.Size]byte) {
	mac := hmac.New(sha256.New, a.key)
	mac.Write([]byte(token))
	mac.Sum(h[:0])
	return h
}

// add remembers a token that was accepted.
func (a *acceptedTokens) add(token, user string) {
	a.names.Add(a.hash(token), flow.Distinguisher(user), acceptedFor)
}

// name returns the name under which the requests of a token's user are counted.
func (a *acceptedTokens) name(token string) (name string, known bool) {
	v, known := a.names.Get(a.hash(token))
	if !known {
		return "", false
	}
	return v.(string), true
}

// webSocketToken is the prefix of the subprotocol that has a token, as servers of Kubernetes take it from browsers.
const webSocketToken = "base64url.bearer.authorization.k8s.io."

// tokenOf returns the token that is reviewed first of those that a request brings, or "". Two spellings of one token must not count as two,
// because then a single one could take the place of all others that are remembered.
func tokenOf(r *http.Request) string {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if strings.EqualFold(scheme, "bearer") {
		token, _, _ := strings.Cut(rest, " ")
		return token
	}
	for protocol := range strings.SplitSeq(strings.Join(r.Header.Values("Sec-Websocket-Protocol"), ","), ",") {
		if encoded, ok := strings.CutPrefix(strings.TrimSpace(protocol), webSocketToken); ok {
			token, _ := base64.RawURLEncoding.DecodeString(encoded)
			return string(token)
		}
	}
	return ""
}

// hasToken reports whether a request brings a token, in one of the two places where servers of Kubernetes take them. Both are
// removed when the token is accepted.
func hasToken(r *http.Request) bool {
	return r.Header.Get("Authorization") != "" ||
		strings.Contains(strings.Join(r.Header.Values("Sec-Websocket-Protocol"), ","), webSocketToken)
}
