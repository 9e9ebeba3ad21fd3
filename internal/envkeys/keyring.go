// Package envkeys seals the values of threads' variables (ENV-05) by envelope encryption with Tink. Each value has a
// key of its own, which is stored beside it, sealed under the primary key of a keyset. So a rotation of keys does not
// touch the values. Sealed values are bound to the root thread of the tree and to the variable's name: they cannot be
// opened elsewhere.
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
	tinkpb "github.com/tink-crypto/tink-go/v2/proto/tink_go_proto"
	"github.com/tink-crypto/tink-go/v2/tink"
)

const (
	// DefaultSecret is the default name of the Secret with the keyset, in the manager's namespace.
	DefaultSecret = "skein-env-keys"
	// SecretKey is the key in that Secret. Its value is a Tink keyset in JSON.
	SecretKey = "keyset.json"
)

// ErrNoKeys means that there is no keyset.
var ErrNoKeys = errors.New("there are no keys to seal variables with: see that the manager can read and create the Secret of --env-key-secret")

// UnknownKeyError means that a value is sealed under a key that the keyset does not have.
type UnknownKeyError struct{ KeyID uint32 }

// Error implements error.
func (e *UnknownKeyError) Error() string {
	return fmt.Sprintf("the variable is sealed under the key %d, which is not in the keyset: put that key back into the Secret of --env-key-secret, or set the variable anew", e.KeyID)
}

// Keyring seals with the keyset that Use was last called with. It is safe for concurrent use; mu guards its fields.
type Keyring struct {
	mu   sync.RWMutex
	text []byte
	keys *keys
}

// keys is one parsed keyset.
type keys struct {
	primary  uint32
	ids      []uint32
	kek      tink.AEAD
	envelope *aead.KMSEnvelopeAEAD
}

// Use sets the keyset, Tink's JSON in clear text. changed is false when that keyset is already in use.
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

// readHandle does not return the parser's error, because that may contain a part of the keyset.
func readHandle(text []byte) (*keyset.Handle, error) {
	h, err := insecurecleartextkeyset.Read(keyset.NewJSONReader(bytes.NewReader(text)))
	if err != nil {
		return nil, errors.New("it is not a Tink keyset in JSON")
	}
	return h, nil
}

// Generate returns a new keyset with one key.
func Generate() ([]byte, error) {
	h, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return write(h)
}

// Rotate returns the keyset with a new primary key. The other keys stay, for what is sealed under them.
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

// Remove returns the keyset without the given keys.
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

// IDs returns the enabled keys of a keyset, and its primary key.
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

// Primary returns the id of the key that values are sealed under at present, or ErrNoKeys.
func (k *Keyring) Primary() (uint32, error) {
	cur, err := k.current()
	if err != nil {
		return 0, err
	}
	return cur.primary, nil
}

// Has reports whether the keyring can open what is sealed under a key.
func (k *Keyring) Has(id uint32) bool {
	cur, err := k.current()
	return err == nil && slices.Contains(cur.ids, id)
}

// Merge returns a keyset with the keys of another one besides its own. Its primary key stays.
func Merge(text, other []byte) ([]byte, error) {
	h, err := readHandle(text)
	if err != nil {
		return nil, err
	}
	from, err := readHandle(other)
	if err != nil {
		return nil, fmt.Errorf("the keys to add: %w", err)
	}
	into, added := insecurecleartextkeyset.KeysetMaterial(h), insecurecleartextkeyset.KeysetMaterial(from)
	for _, key := range added.GetKey() {
		if !slices.ContainsFunc(into.GetKey(), func(k *tinkpb.Keyset_Key) bool { return k.GetKeyId() == key.GetKeyId() }) {
			into.Key = append(into.Key, key)
		}
	}
	if h, err = insecurecleartextkeyset.Read(inMemory{into}); err != nil {
		return nil, errors.New("the keys cannot be put together")
	}
	return write(h)
}

// inMemory is a keyset.Reader of a keyset that has been read already.
type inMemory struct{ keys *tinkpb.Keyset }

func (m inMemory) Read() (*tinkpb.Keyset, error) { return m.keys, nil }

func (m inMemory) ReadEncrypted() (*tinkpb.EncryptedKeyset, error) {
	return nil, errors.New("the keys are not encrypted")
}

// Seal seals a value for a variable of the threads below a root. It returns ErrNoKeys without a keyset.
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

// Open opens what Seal returned. It returns *UnknownKeyError when the key is gone, and ErrNoKeys without a keyset.
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

// Reseal seals the key of a sealed value under the primary key. It does not open the value itself.
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

// knows returns an error unless the keyset has the key that a value is sealed under.
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

// prefixSize is the size of the prefix of data sealed by a key of a keyset: a version and the key's id.
const prefixSize = 5

// split splits the output of Tink's envelope encryption: the length of the sealed key, the sealed key, and the rest.
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

// bind returns the associated data that binds a value to its root and name. Neither part can contain NUL.
func bind(root, name string) []byte { return []byte("skein.dev/env\x00" + root + "\x00" + name) }
