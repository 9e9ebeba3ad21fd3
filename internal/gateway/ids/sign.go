package ids

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// MinKeyLength is the smallest size of a key, in bytes.
const MinKeyLength = 16

// signatureLength is the length of a signature: the base64 of 32 bytes.
const signatureLength = 44

// maxSigned bounds the length of what can be a signed id.
const maxSigned = MaxLength + 1 + signatureLength

// Keyring signs ids with its first key and verifies those that any of its keys has signed.
type Keyring struct{ keys [][]byte }

// NewKeyring returns a keyring. The first key signs.
func NewKeyring(keys ...[]byte) (*Keyring, error) {
	if len(keys) == 0 {
		return nil, errors.New("a keyring needs a key")
	}
	for i, k := range keys {
		if len(k) < MinKeyLength {
			return nil, fmt.Errorf("key %d has %d bytes: use %d or more, for example from openssl rand -base64 32", i+1, len(k), MinKeyLength)
		}
	}
	return &Keyring{keys: keys}, nil
}

// What stands between an id and its signature. The two are those of Agentuity's runtime, which signs its header by itself, and leaves
// its cookie to hono. A server of that runtime with the same key takes what a gateway has set, and the other way round.
const (
	inHeader = ";"
	inCookie = "."
)

// Sign returns "id;signature", where the signature is the base64 of the id's HMAC-SHA256 (IDS-03).
func (r *Keyring) Sign(id string) string { return r.sign(id, inHeader) }

func (r *Keyring) sign(id, separator string) string { return id + separator + signature(r.keys[0], id) }

func signature(key []byte, id string) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// errUnsigned and errForged say why a signed id does not count. They say nothing about what would.
var (
	errUnsigned = errors.New("the thread id is not signed: send it exactly as the answer's x-thread-id had it")
	errForged   = errors.New("the signature of the thread id is wrong or its key is no longer in use: leave the id out for a new conversation")
)

// Verify returns the id of "id;signature". It compares signatures in constant time and looks at all keys.
func (r *Keyring) Verify(signed string) (id string, err error) { return r.verify(signed, inHeader) }

func (r *Keyring) verify(signed, separator string) (string, error) {
	if len(signed) > maxSigned {
		return "", fmt.Errorf("a signed thread id has %d characters at most", maxSigned)
	}
	id, given, found := strings.Cut(signed, separator)
	if !found || given == "" {
		return "", errUnsigned
	}
	if err := Check(id); err != nil {
		return "", err
	}
	ok := false
	for _, k := range r.keys {
		// The texts are compared, not the bytes that they stand for: one signature has one spelling.
		ok = hmac.Equal([]byte(signature(k, id)), []byte(given)) || ok
	}
	if !ok {
		return "", errForged
	}
	return id, nil
}
