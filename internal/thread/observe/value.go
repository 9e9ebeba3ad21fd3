package observe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
)

// Value is a thread as it was read at one moment.
type Value struct {
	// Version and Seq are the thread's version and the newest sequence number of its log.
	Version, Seq int64
	Parts        map[string]Part
}

// Part is one member of a value.
type Part struct {
	// JSON is the part, unless it is a list of items.
	JSON json.RawMessage
	// Items make a list. Their ids tell patches which items stay, so that the removal of one is one operation.
	Items []Item
	List  bool
}

// Item is an element of a list. Ids are unique in a list.
type Item struct {
	ID   string
	JSON json.RawMessage
}

// encode returns a part as JSON.
func (p Part) encode() []byte {
	if !p.List {
		return p.JSON
	}
	var b bytes.Buffer
	b.WriteByte('[')
	for i := range p.Items {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(p.Items[i].JSON)
	}
	b.WriteByte(']')
	return b.Bytes()
}

// bytes returns how many bytes the JSON of a value has.
func (v *Value) bytes() (n int64) {
	for _, p := range v.Parts {
		n += int64(len(p.JSON))
		for i := range p.Items {
			n += int64(len(p.Items[i].JSON))
		}
	}
	return n
}

// has reports whether a value has all these parts.
func (v *Value) has(parts []string) bool {
	return !slices.ContainsFunc(parts, func(p string) bool { _, ok := v.Parts[p]; return !ok })
}

// encode returns some parts of a value as the JSON of an update.
func (v *Value) encode(parts []string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"v":%d,"value":{`, v.Version)
	for i, name := range parts {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:", name)
		b.Write(v.Parts[name].encode())
	}
	b.WriteString("}}")
	return b.Bytes()
}

// difference returns the encoded operations (RFC 6902) that change each part of a value into those of another. Parts
// without a change, and parts that only one of them has, are left out.
func difference(from, to *Value) (map[string][][]byte, error) {
	changed := map[string][][]byte{}
	for name := range maps.Keys(to.Parts) {
		before, ok := from.Parts[name]
		if !ok {
			continue
		}
		ops, err := before.difference(name, to.Parts[name])
		if err != nil {
			return nil, err
		}
		if len(ops) > 0 {
			changed[name] = ops
		}
	}
	return changed, nil
}

func (p Part) difference(name string, to Part) (ops [][]byte, err error) {
	path := "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
	if !p.List || !to.List {
		return changes(path, p.encode(), to.encode())
	}
	stays := map[string]bool{}
	for i := range to.Items {
		stays[to.Items[i].ID] = true
	}
	rest := slices.Clone(p.Items)
	for i := len(rest) - 1; i >= 0; i-- {
		if !stays[rest[i].ID] {
			ops = append(ops, operation("remove", fmt.Sprintf("%s/%d", path, i), nil))
			rest = slices.Delete(rest, i, i+1)
		}
	}
	for i := range to.Items {
		at := fmt.Sprintf("%s/%d", path, i)
		switch {
		case i >= len(rest):
			ops = append(ops, operation("add", at, to.Items[i].JSON))
		case bytes.Equal(rest[i].JSON, to.Items[i].JSON):
		case rest[i].ID == to.Items[i].ID:
			more, err := changes(at, rest[i].JSON, to.Items[i].JSON)
			if err != nil {
				return nil, err
			}
			ops = append(ops, more...)
		case !slices.ContainsFunc(rest, func(r Item) bool { return r.ID == to.Items[i].ID }):
			ops = append(ops, operation("add", at, to.Items[i].JSON)) // in between
			rest = slices.Insert(rest, i, to.Items[i])
		default: // the order is another one
			ops = append(ops, operation("replace", at, to.Items[i].JSON))
			rest[i] = to.Items[i]
		}
	}
	for i := len(rest) - 1; i >= len(to.Items); i-- {
		ops = append(ops, operation("remove", fmt.Sprintf("%s/%d", path, i), nil))
	}
	return ops, nil
}

// changes returns the operations between two JSON values at a path.
func changes(path string, from, to []byte) (ops [][]byte, err error) {
	if bytes.Equal(from, to) {
		return nil, nil
	}
	found, err := jsonpatch.CreatePatch(from, to)
	if err != nil { // a number beyond what the library reads
		return [][]byte{operation("replace", path, to)}, nil
	}
	for _, op := range found {
		// Common libraries do not find a member whose name is empty, the one of the Go client among them.
		if strings.Contains(op.Path+"/", "//") {
			return [][]byte{operation("replace", path, to)}, nil
		}
		if op.Operation == "remove" {
			ops = append(ops, operation(op.Operation, path+op.Path, nil))
			continue
		}
		value, err := json.Marshal(op.Value) // of null too, which the library leaves out of a replacement
		if err != nil {
			return nil, fmt.Errorf("patch of %s: %w", path, err)
		}
		ops = append(ops, operation(op.Operation, path+op.Path, value))
	}
	return ops, nil
}

// operation encodes one operation. Only a removal has no value.
func operation(op, path string, value []byte) []byte {
	quoted, _ := json.Marshal(path) // a text always has JSON
	if value == nil {
		return fmt.Appendf(nil, `{"op":%q,"path":%s}`, op, quoted)
	}
	return fmt.Appendf(nil, `{"op":%q,"path":%s,"value":%s}`, op, quoted, value)
}
