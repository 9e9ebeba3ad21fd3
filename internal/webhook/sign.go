// Package webhook signs what goes to servers outside, and checks what comes from them (EVT-05): in the form of Standard
// Webhooks, and in GitHub's.
package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Headers of Standard Webhooks and of GitHub.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"

	HeaderGitHubID        = "X-Github-Delivery"
	HeaderGitHubEvent     = "X-Github-Event"
	HeaderGitHubSignature = "X-Hub-Signature-256"
)

// MinKeyLength is the smallest number of bytes of a key.
const MinKeyLength = 16

// Tolerance is how far the time of a delivery may be from now.
const Tolerance = 5 * time.Minute

// maxID bounds ids of deliveries, and maxSignatures how many signatures of one are looked at.
const (
	maxID         = 200
	maxSignatures = 10
)

// Why a delivery is refused. The texts go to its sender.
var (
	ErrNoID         = errors.New("the id of the delivery is missing, longer than 200 characters, or has others than visible ASCII: give each delivery one, such as a random UUID")
	ErrNoTime       = errors.New(HeaderTimestamp + " must be the time of sending, in seconds since 1970, such as 1767225600")
	ErrOld          = fmt.Errorf("%s is more than %d minutes from now: send the delivery again with a new time and signature, and set the clock", HeaderTimestamp, int(Tolerance.Minutes()))
	ErrNoSignature  = errors.New("the signature is missing: sign the body with a key of the receiver")
	ErrBadSignature = errors.New("the signature does not fit the body and the key: sign the body as it is sent, with a key of the receiver")
)

// Key returns the bytes of a key: whsec_ and base64, or any other text as it is.
func Key(text string) ([]byte, error) {
	key := []byte(text)
	if encoded, ok := strings.CutPrefix(text, "whsec_"); ok {
		var err error
		if key, err = base64.StdEncoding.DecodeString(encoded); err != nil {
			return nil, errors.New("what follows whsec_ is not base64")
		}
	}
	if len(key) < MinKeyLength {
		return nil, fmt.Errorf("it has %d bytes: use %d or more, for example from openssl rand -base64 32", len(key), MinKeyLength)
	}
	return key, nil
}

// Sign sets the headers of Standard Webhooks on a request: a signature with each key.
func Sign(h http.Header, keys [][]byte, id string, at time.Time, body []byte) {
	seconds := strconv.FormatInt(at.Unix(), 10)
	signatures := make([]string, len(keys))
	for i, key := range keys {
		signatures[i] = "v1," + base64.StdEncoding.EncodeToString(mac(key, id, ".", seconds, ".", string(body)))
	}
	h.Set(HeaderID, id)
	h.Set(HeaderTimestamp, seconds)
	h.Set(HeaderSignature, strings.Join(signatures, " "))
}

func mac(key []byte, parts ...string) []byte {
	m := hmac.New(sha256.New, key)
	for _, p := range parts {
		m.Write([]byte(p))
	}
	return m.Sum(nil)
}

// Verify checks a delivery in the form of Standard Webhooks and returns its id.
func Verify(h http.Header, keys [][]byte, now time.Time, body []byte) (id string, err error) {
	if id, err = one(h, HeaderID, ErrNoID); err != nil {
		return "", err
	}
	if !validID(id) {
		return "", ErrNoID
	}
	seconds, err := one(h, HeaderTimestamp, ErrNoTime)
	if err != nil {
		return "", err
	}
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return "", ErrNoTime
	}
	given, err := one(h, HeaderSignature, ErrNoSignature)
	if err != nil {
		return "", err
	}
	if !anyFits(keys, given, id, ".", seconds, ".", string(body)) {
		return "", ErrBadSignature
	}
	if d := now.Sub(time.Unix(at, 0)); d > Tolerance || d < -Tolerance { // after the signature, so that only the sender learns of it
		return "", ErrOld
	}
	return id, nil
}

func anyFits(keys [][]byte, given string, parts ...string) bool {
	for i, signature := range strings.Fields(given) {
		encoded, ok := strings.CutPrefix(signature, "v1,")
		if !ok || i >= maxSignatures {
			continue
		}
		sum, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			continue
		}
		for _, key := range keys {
			if hmac.Equal(sum, mac(key, parts...)) {
				return true
			}
		}
	}
	return false
}

// VerifyGitHub checks a delivery of GitHub and returns its id. GitHub does not sign the id, and tells no time.
func VerifyGitHub(h http.Header, keys [][]byte, body []byte) (id string, err error) {
	if id, err = one(h, HeaderGitHubID, ErrNoID); err != nil {
		return "", err
	}
	if !validID(id) {
		return "", ErrNoID
	}
	given, err := one(h, HeaderGitHubSignature, ErrNoSignature)
	if err != nil {
		return "", err
	}
	encoded, ok := strings.CutPrefix(given, "sha256=")
	sum, err := hex.DecodeString(encoded)
	if !ok || err != nil {
		return "", ErrBadSignature
	}
	for _, key := range keys {
		if hmac.Equal(sum, mac(key, string(body))) {
			return id, nil
		}
	}
	return "", ErrBadSignature
}

// one returns a header that must come once.
func one(h http.Header, name string, missing error) (string, error) {
	if v := h.Values(name); len(v) == 1 && v[0] != "" {
		return v[0], nil
	}
	return "", missing
}

func validID(id string) bool {
	for _, c := range []byte(id) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return id != "" && len(id) <= maxID
}
