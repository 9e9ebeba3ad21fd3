// Package envkeys seals the values of threads' variables (ENV-05) by envelope encryption with Tink: each
// value under a key of its own, which is kept beside it, sealed under the primary key of a keyset. So changing
// keys touches no value. What is sealed is bound to the outermost thread of its tree and to the variable's
// name: moved elsewhere it cannot be opened.
package envkeys

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"
)

const (
	// DefaultSecret is the name of the Secret with the keyset, in the manager's namespace, when nobody says otherwise.
	DefaultSecret = "skein-env-keys"
	// SecretKey is the key of that Secret: a Tink keyset in JSON.
	SecretKey = "keyset.json"
)

// ErrNoKeys says that there is no keyset.
var ErrNoKeys = errors.New("there are no keys to seal variables with: see that the manager can read and create the Secret of --env-key-secret")

// UnknownKeyError says that a value is sealed under a key that the keyset does not have.
type UnknownKeyError struct{ KeyID uint32 }

// Error implements error.
func (e *UnknownKeyError) Error() string {
	return fmt.Sprintf("the variable is sealed under the key %d, which is not in the keyset: put that key back into the Secret of --env-key-secret, or set the variable anew", e.KeyID)
}

// Keyring seals under the keyset that it was given last. It is safe for concurrent use.
type Keyring struct {
	mu   sync.RWMutex
	text []byte
	keys *keys
}

// keys is one keyset, ready for use.
type keys struct {
	primary  uint32
	ids      []uint32
	kek      tink.AEAD
	envelope *aead.KMSEnvelopeAEAD
}

// Use takes a keyset: Tink's JSON, in clear text. changed is false when it is the one in use.
func (k *Keyring) Use(text []byte) (changed bool, err error) {
	text = bytes.TrimSpace(text)
	k.mu.RLock()
	same := k.keys != nil && bytes.Equal(k.text, text)
	k.mu.RUnlock()
	if same {
		return false, nil
	}
	fresh, err := readKeys(text)
	if err != nil {
		return false, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.text, k.keys = bytes.Clone(text), fresh
	return true, nil
}

func readKeys(text []byte) (*keys, error) {
	h, err := readHandle(text)
	if err != nil {
		return nil, err
	}
	kek, err := aead.New(h)
	if err != nil {
		return nil, errors.New("the keyset holds no AEAD keys: make it with kubectl skein env rotate, or with tinkey and the template AES256_GCM")
	}
	info := h.KeysetInfo()
	out := &keys{primary: info.GetPrimaryKeyId(), kek: kek, envelope: aead.NewKMSEnvelopeAEAD2(aead.AES256GCMKeyTemplate(), kek)}
	for _, key := range info.GetKeyInfo() {
		if key.GetStatus().String() != "ENABLED" {
			continue
		}
		if key.GetOutputPrefixType().String() != "TINK" {
			return nil, fmt.Errorf("the key %d of the keyset does not mark what it seals: use keys with the output prefix TINK", key.GetKeyId())
		}
		out.ids = append(out.ids, key.GetKeyId())
	}
	return out, nil
}

// readHandle never lets an error of the parser out: it may hold a part of the keyset.
func readHandle(text []byte) (*keyset.Handle, error) {
	h, err := insecurecleartextkeyset.Read(keyset.NewJSONReader(bytes.NewReader(text)))
	if err != nil {
		return nil, errors.New("it is no Tink keyset in JSON")
	}
	return h, nil
}

// Generate makes a keyset of one key.
func Generate() ([]byte, error) {
	h, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return write(h)
}

// Rotate gives the keyset with a fresh primary key. The others stay, for what is sealed under them.
func Rotate(text []byte) (rotated []byte, primary uint32, err error) {
	h, err := readHandle(text)
	if err != nil {
		return nil, 0, err
	}
	m := keyset.NewManagerFromHandle(h)
	if primary, err = m.Add(aead.AES256GCMKeyTemplate()); err != nil {
		return nil, 0, fmt.Errorf("make a key: %w", err)
	}
	if err := m.SetPrimary(primary); err != nil {
		return nil, 0, fmt.Errorf("make the key %d primary: %w", primary, err)
	}
	if h, err = m.Handle(); err != nil {
		return nil, 0, err
	}
	rotated, err = write(h)
	return rotated, primary, err
}

// Remove gives the keyset without some keys.
func Remove(text []byte, ids ...uint32) ([]byte, error) {
	h, err := readHandle(text)
	if err != nil {
		return nil, err
	}
	m := keyset.NewManagerFromHandle(h)
	for _, id := range ids {
		if err := m.Delete(id); err != nil {
			return nil, fmt.Errorf("remove the key %d: %w", id, err)
		}
	}
	if h, err = m.Handle(); err != nil {
		return nil, err
	}
	return write(h)
}

// IDs lists the enabled keys of a keyset, and its primary.
func IDs(text []byte) (ids []uint32, primary uint32, err error) {
	k, err := readKeys(bytes.TrimSpace(text))
	if err != nil {
		return nil, 0, err
	}
	return k.ids, k.primary, nil
}

func write(h *keyset.Handle) ([]byte, error) {
	var out strings.Builder
	if err := insecurecleartextkeyset.Write(h, keyset.NewJSONWriter(&out)); err != nil {
		return nil, errors.New("the keyset cannot be written")
	}
	return []byte(out.String()), nil
}

func (k *Keyring) current() (*keys, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.keys == nil {
		return nil, ErrNoKeys
	}
	return k.keys, nil
}

// Primary is the key under which values are sealed at present. ErrNoKeys.
func (k *Keyring) Primary() (uint32, error) {
	cur, err := k.current()
	if err != nil {
		return 0, err
	}
	return cur.primary, nil
}

// Seal seals a value for a variable of the threads below a root. ErrNoKeys.
func (k *Keyring) Seal(root, name string, value []byte) (sealed []byte, keyID uint32, err error) {
	cur, err := k.current()
	if err != nil {
		return nil, 0, err
	}
	if sealed, err = cur.envelope.Encrypt(value, bind(root, name)); err != nil {
		return nil, 0, fmt.Errorf("seal the variable %s: %w", name, err)
	}
	return sealed, cur.primary, nil
}

// Open opens what Seal gave. *UnknownKeyError when the key is gone, ErrNoKeys when all are.
func (k *Keyring) Open(root, name string, sealed []byte) ([]byte, error) {
	cur, err := k.current()
	if err != nil {
		return nil, err
	}
	if err := cur.knows(sealed); err != nil {
		return nil, err
	}
	value, err := cur.envelope.Decrypt(sealed, bind(root, name))
	if err != nil {
		return nil, fmt.Errorf("the variable %s cannot be opened: it was damaged, or sealed for another thread or name", name)
	}
	return value, nil
}

// Reseal puts the key of a sealed value under the primary key. The value itself is not opened.
func (k *Keyring) Reseal(sealed []byte) (out []byte, keyID uint32, err error) {
	cur, err := k.current()
	if err != nil {
		return nil, 0, err
	}
	if err := cur.knows(sealed); err != nil {
		return nil, 0, err
	}
	wrapped, payload, err := split(sealed)
	if err != nil {
		return nil, 0, err
	}
	dek, err := cur.kek.Decrypt(wrapped, nil)
	if err != nil {
		return nil, 0, errDamaged
	}
	defer clear(dek)
	if wrapped, err = cur.kek.Encrypt(dek, nil); err != nil {
		return nil, 0, fmt.Errorf("seal under the key %d: %w", cur.primary, err)
	}
	out = binary.BigEndian.AppendUint32(nil, uint32(len(wrapped)))
	return append(append(out, wrapped...), payload...), cur.primary, nil
}

var errDamaged = errors.New("a sealed variable is damaged")

// knows tells whether the key that a value is sealed under is there.
func (k *keys) knows(sealed []byte) error {
	wrapped, _, err := split(sealed)
	if err != nil {
		return err
	}
	if id := binary.BigEndian.Uint32(wrapped[1:prefixSize]); !slices.Contains(k.ids, id) {
		return &UnknownKeyError{id}
	}
	return nil
}

// prefixSize of what a key of a keyset seals: a version and the key's id.
const prefixSize = 5

// split takes apart what Tink's envelope encryption writes: the length of the sealed key, that key, the rest.
func split(sealed []byte) (wrapped, payload []byte, err error) {
	if len(sealed) < 4 {
		return nil, nil, errDamaged
	}
	n := binary.BigEndian.Uint32(sealed)
	if rest := sealed[4:]; n >= prefixSize && uint64(n) < uint64(len(rest)) && rest[0] == 1 {
		return rest[:n], rest[n:], nil
	}
	return nil, nil, errDamaged
}

// bind says what a value belongs to. Neither part holds NUL.
func bind(root, name string) []byte { return []byte("skein.dev/env\x00" + root + "\x00" + name) }
