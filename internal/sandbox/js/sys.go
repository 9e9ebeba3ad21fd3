//go:build linux && (amd64 || arm64)

package js

import (
	"crypto"
	"crypto/rand"
	_ "crypto/sha1" // for digest
	_ "crypto/sha256"
	_ "crypto/sha512"
	"encoding/base64"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/js/qjs"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
	"github.com/skein-dev/skein/internal/sandbox/value"
)

// hostSide returns the functions of the object that lib.Definition takes, in the same order each time.
func (i *isolate) hostSide() []hostFunc {
	return []hostFunc{
		{"call", 4, i.callHost},
		{"setTimer", 4, i.setTimer},
		{"clearTimer", 1, i.clearTimer},
		{"encodeText", 1, i.encodeText},
		{"decodeText", 3, i.decodeText},
		{"clone", 1, i.clone},
		{"atob", 1, i.atob},
		{"btoa", 1, i.btoa},
		{"randomUUID", 0, i.randomUUID},
		{"randomBytes", 1, i.randomBytes},
		{"digest", 2, i.digest},
		{"urlClasses", 0, i.urlClasses},
		{"httpParts", 1, i.httpParts},
		{"handlerParts", 2, i.handlerParts},
	}
}

// callHost implements sys.call(invocation, method, args, functions). functions says whether args may contain functions.
func (i *isolate) callHost(a []qjs.Value) (qjs.Value, bool) {
	invocation, ok1 := i.vm.Text(a[0], protocol.MaxName)
	method, ok2 := i.vm.Text(a[1], protocol.MaxName)
	if !ok1 || !ok2 {
		return i.vm.Rethrow()
	}
	args := i.elements(a[2])
	defer i.freeAll(args)
	to := target{Method: method, Invocation: invocation}
	if !qjs.ToBool(a[3]) {
		return i.hostCall(to, args, nil, nil)
	}
	if len(i.refs) >= maxRefs {
		return i.vm.ThrowError("RangeError", "too many functions are handed to the host: at most 10000")
	}
	var handed []sandbox.FuncRef
	hand := func(f qjs.Value) value.FuncRef {
		i.lastRef++
		i.refs[i.lastRef] = i.vm.Dup(f)
		handed = append(handed, i.lastRef)
		return i.lastRef
	}
	return i.hostCall(to, args, hand, func() {
		for _, ref := range handed {
			i.vm.Free(i.refs[ref])
			delete(i.refs, ref)
		}
	})
}

// elements returns copies of the elements of an array of ours.
func (i *isolate) elements(array qjs.Value) []qjs.Value {
	length, ok := i.vm.Get(array, "length")
	if !ok {
		i.vm.Free(i.vm.Exception())
		return nil
	}
	n, _ := qjs.ToNumber(length)
	out := make([]qjs.Value, 0, int(n))
	for k := range int(n) {
		v, ok := i.vm.Index(array, k)
		if !ok {
			i.vm.Free(i.vm.Exception())
			v = qjs.Undefined
		}
		out = append(out, v)
	}
	return out
}

// encodeText implements sys.encodeText(text), which returns the text's bytes in UTF-8.
func (i *isolate) encodeText(a []qjs.Value) (qjs.Value, bool) { return i.vm.Borrow(a[0], i.vm.Bytes) }

// decodeText implements sys.decodeText(bytes, fatal, stream), which returns [text, bytes used]. It fails for bytes that are not UTF-8 if fatal
// is true, and leaves an incomplete character at the end for the next call if stream is true.
func (i *isolate) decodeText(a []qjs.Value) (qjs.Value, bool) {
	b, ok := i.vm.BytesOf(a[0])
	if !ok {
		return i.vm.Rethrow()
	}
	used := len(b)
	if qjs.ToBool(a[2]) {
		used -= unfinished(b)
	}
	if qjs.ToBool(a[1]) && !utf8.Valid(b[:used]) {
		return i.vm.ThrowError("TypeError", "the bytes are not UTF-8")
	}
	text, ok := i.vm.UTF8(validUTF8(b[:used]))
	if !ok {
		return i.vm.Rethrow()
	}
	pair, ok := i.vm.Array()
	if !ok || !i.vm.SetIndex(pair, 0, text) || !i.vm.SetIndex(pair, 1, qjs.Int(int32(used))) {
		return i.vm.Rethrow()
	}
	return pair, true
}

// validUTF8 returns b with U+FFFD for each maximal part that is not UTF-8, as the Encoding Standard says: for each beginning of a
// character that does not go on, and for each byte that cannot begin one.
func validUTF8(b []byte) []byte {
	if utf8.Valid(b) {
		return b
	}
	out := make([]byte, 0, len(b)+2*utf8.UTFMax)
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			for n = 0; n < len(b) && !utf8.FullRune(b[:n+1]); n++ { // it goes on
			}
			n = max(n, 1)
		}
		out = utf8.AppendRune(out, r)
		b = b[n:]
	}
	return out
}

// unfinished returns the number of bytes at the end that begin an incomplete character.
func unfinished(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if c := b[len(b)-n]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(b[len(b)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}

// clone implements sys.clone(value), which is structuredClone for values that can cross the sandbox.
func (i *isolate) clone(a []qjs.Value) (qjs.Value, bool) {
	b, err := i.vm.Encode(a[0], nil)
	if errors.Is(err, qjs.ErrThrown) {
		return i.vm.Rethrow()
	}
	if err != nil {
		return i.vm.ThrowError("DataCloneError", strings.Replace(err.Error(), "cannot cross the sandbox", "cannot be cloned", 1))
	}
	defer i.vm.Release(b)
	v, err := i.vm.Decode(b)
	if errors.Is(err, qjs.ErrNoMemory) {
		return i.vm.ThrowOutOfMemory()
	}
	if err != nil {
		return i.vm.ThrowError("RangeError", err.Error())
	}
	return v, true
}

// atob decodes base64 to a text with one character per byte.
func (i *isolate) atob(a []qjs.Value) (qjs.Value, bool) {
	s, ok := i.vm.Text(a[0], -1)
	if !ok {
		return i.vm.Rethrow()
	}
	s = strings.TrimRight(strings.Join(strings.Fields(s), ""), "=")
	b, err := base64.RawStdEncoding.DecodeString(s)
	if err != nil {
		return i.vm.ThrowError("InvalidCharacterError", "the text is not base64")
	}
	out := make([]rune, len(b))
	for k, c := range b {
		out[k] = rune(c)
	}
	return i.vm.String(string(out))
}

// btoa encodes a text with one character per byte as base64.
func (i *isolate) btoa(a []qjs.Value) (qjs.Value, bool) {
	return i.vm.Borrow(a[0], func(text []byte) (qjs.Value, bool) {
		raw := text
		if count := utf8.RuneCount(text); count < len(text) {
			raw = make([]byte, 0, count)
			for _, r := range string(text) {
				if r > 0xFF {
					return i.vm.ThrowError("InvalidCharacterError", "the text has characters above U+00FF: encode it first")
				}
				raw = append(raw, byte(r))
			}
		}
		return i.vm.UTF8(base64.StdEncoding.AppendEncode(make([]byte, 0, base64.StdEncoding.EncodedLen(len(raw))), raw))
	})
}

func (i *isolate) randomUUID([]qjs.Value) (qjs.Value, bool) { return i.vm.String(uuid.NewString()) }

// digest returns a digest of bytes, under the names that crypto.subtle has for them.
func (i *isolate) digest(a []qjs.Value) (qjs.Value, bool) {
	name, ok := i.vm.Text(a[0], -1)
	if !ok {
		return i.vm.Rethrow()
	}
	h, known := map[string]crypto.Hash{"SHA-1": crypto.SHA1, "SHA-256": crypto.SHA256, "SHA-384": crypto.SHA384, "SHA-512": crypto.SHA512}[name]
	data, isBytes := i.vm.BytesOf(a[1])
	if !known || !isBytes {
		return i.vm.ThrowError("NotSupportedError", "there is no such digest")
	}
	d := h.New()
	_, _ = d.Write(data) // never fails
	return i.vm.Bytes(d.Sum(nil))
}

// maxRandom is the maximum for one call of crypto.getRandomValues, as in browsers.
const maxRandom = 65536

func (i *isolate) randomBytes(a []qjs.Value) (qjs.Value, bool) {
	n, _ := qjs.ToNumber(a[0])
	if n < 0 || n > maxRandom {
		return i.vm.ThrowError("RangeError", "at most 65536 random bytes at once")
	}
	b := make([]byte, int(n))
	_, _ = rand.Read(b) // never fails
	return i.vm.Bytes(b)
}
