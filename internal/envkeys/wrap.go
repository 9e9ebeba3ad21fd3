package envkeys

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tink-crypto/tink-go/v2/aead/subtle"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"golang.org/x/crypto/argon2"
)

// The cost of a guess of a passphrase, and the bounds of what Unwrap takes, since the file says it.
const (
	wrapTime, wrapMemory, wrapThreads = 3, 64 << 10, 4
	maxWrapTime, maxWrapMemory        = 20, 1 << 20
	minPassphrase                     = 12
	saltSize                          = 16
)

// wrapped is a keyset under a passphrase.
type wrapped struct {
	KDF     string          `json:"kdf"`
	Salt    []byte          `json:"salt"`
	Time    uint32          `json:"time"`
	Memory  uint32          `json:"memory"` // in KiB
	Threads uint8           `json:"threads"`
	Keyset  json.RawMessage `json:"keyset"` // Tink's encrypted keyset
}

// ErrPassphrase means that a keyset does not open with a passphrase.
var ErrPassphrase = errors.New("the keys do not open with this passphrase, or were damaged")

func (w *wrapped) aead(passphrase []byte) (*subtle.AESGCM, error) {
	return subtle.NewAESGCM(argon2.IDKey(passphrase, w.Salt, w.Time, w.Memory, w.Threads, 32))
}

// Wrap encrypts a keyset under a passphrase.
func Wrap(text, passphrase []byte) ([]byte, error) {
	if len(passphrase) < minPassphrase {
		return nil, fmt.Errorf("the passphrase has %d characters: use at least %d", len(passphrase), minPassphrase)
	}
	h, err := readHandle(text)
	if err != nil {
		return nil, err
	}
	w := &wrapped{KDF: "argon2id", Salt: make([]byte, saltSize), Time: wrapTime, Memory: wrapMemory, Threads: wrapThreads}
	_, _ = rand.Read(w.Salt) // never fails
	master, err := w.aead(passphrase)
	if err != nil {
		return nil, fmt.Errorf("make a key of the passphrase: %w", err)
	}
	var out strings.Builder
	if err := h.Write(keyset.NewJSONWriter(&out), master); err != nil {
		return nil, fmt.Errorf("encrypt the keys: %w", err)
	}
	w.Keyset = json.RawMessage(out.String())
	return json.Marshal(w)
}

// Unwrap opens what Wrap returned.
func Unwrap(data, passphrase []byte) ([]byte, error) {
	var w wrapped
	if err := json.Unmarshal(data, &w); err != nil || w.KDF != "argon2id" || w.Time == 0 || w.Time > maxWrapTime || w.Memory > maxWrapMemory || w.Threads == 0 {
		return nil, errors.New("the encrypted keys cannot be read: the backup is damaged, or a newer release made it")
	}
	master, err := w.aead(passphrase)
	if err != nil {
		return nil, ErrPassphrase
	}
	h, err := keyset.Read(keyset.NewJSONReader(bytes.NewReader(w.Keyset)), master)
	if err != nil {
		return nil, ErrPassphrase
	}
	var out strings.Builder
	if err := insecurecleartextkeyset.Write(h, keyset.NewJSONWriter(&out)); err != nil {
		return nil, errors.New("the keyset cannot be written")
	}
	return []byte(out.String()), nil
}
