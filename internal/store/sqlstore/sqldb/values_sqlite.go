package sqldb

import (
	"database/sql/driver"
	"fmt"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

const (
	pointerSize = libc.Tsize_t(unsafe.Sizeof(uintptr(0)))
	// keptText is up to how many bytes of memory a statement keeps for the texts of its next execution.
	keptText = 64 << 10
	// longestText is the most bytes that SQLite stores in a text or a blob.
	longestText = 1_000_000_000
)

// sqliteStmt is a prepared statement.
type sqliteStmt struct {
	link    *sqliteLink
	handle  uintptr // *sqlite3_stmt
	params  int
	columns int
	// texts is memory for the texts and blobs that are bound. The library reads it until the statement is reset.
	texts, size uintptr
	bound       []int32 // the parameters that are there
}

// textArg is a text or a blob to bind.
type textArg struct {
	param int32
	blob  bool
	text  string // the bytes of a blob
}

// bind binds arguments. The statement is not under way.
func (s *sqliteStmt) bind(args []any) error {
	if len(args) != s.params {
		return fmt.Errorf("the statement has %d parameters, %d are given", s.params, len(args))
	}
	l := s.link
	l.texts = l.texts[:0]
	for i, a := range args {
		if err := s.bindArg(int32(i+1), a); err != nil {
			return fmt.Errorf("parameter %d: %w", i+1, err)
		}
	}
	if len(l.texts) == 0 {
		return nil
	}
	return s.bindTexts(l.texts)
}

// bindArg binds an argument, or puts it into the link's texts.
func (s *sqliteStmt) bindArg(i int32, a any) error {
	l, rc := s.link, int32(sqlite3.SQLITE_OK)
	switch a := a.(type) {
	case nil:
		rc = sqlite3.Xsqlite3_bind_null(l.tls, s.handle, i)
	case int64:
		rc = sqlite3.Xsqlite3_bind_int64(l.tls, s.handle, i, a)
	case int:
		rc = sqlite3.Xsqlite3_bind_int64(l.tls, s.handle, i, int64(a))
	case bool:
		var n int64
		if a {
			n = 1
		}
		rc = sqlite3.Xsqlite3_bind_int64(l.tls, s.handle, i, n)
	case float64:
		rc = sqlite3.Xsqlite3_bind_double(l.tls, s.handle, i, a)
	case string:
		l.texts = append(l.texts, textArg{param: i, text: text(a)})
	case []byte:
		if a == nil {
			return s.bindArg(i, nil)
		}
		l.texts = append(l.texts, textArg{param: i, blob: true, text: unsafe.String(unsafe.SliceData(a), len(a))})
	default:
		v, err := driver.DefaultParameterConverter.ConvertValue(a)
		if err != nil {
			return err
		}
		switch v.(type) {
		case nil, int64, bool, float64, string, []byte:
			return s.bindArg(i, v)
		}
		return fmt.Errorf("a %T has no form in SQLite", v)
	}
	if rc != sqlite3.SQLITE_OK {
		return l.failure(rc)
	}
	return nil
}

// bindTexts copies texts to the statement's memory and binds them there.
func (s *sqliteStmt) bindTexts(texts []textArg) error {
	l, size := s.link, uintptr(1) // so that an empty text has an address too
	for i := range texts {
		if len(texts[i].text) > longestText {
			return l.failure(sqlite3.SQLITE_TOOBIG)
		}
		size += uintptr(len(texts[i].text))
	}
	if size > s.size {
		s.free()
		if s.texts = libc.Xmalloc(l.tls, libc.Tsize_t(size)); s.texts == 0 {
			return l.failure(sqlite3.SQLITE_NOMEM)
		}
		s.size = size
	}
	at := s.texts
	s.bound = s.bound[:0]
	for i := range texts {
		t, n := &texts[i], len(texts[i].text)
		copy(bytesAt(at, n), t.text)
		s.bound = append(s.bound, t.param)
		var rc int32
		if t.blob {
			rc = sqlite3.Xsqlite3_bind_blob(l.tls, s.handle, t.param, at, int32(n), sqlite3.SQLITE_STATIC)
		} else {
			rc = sqlite3.Xsqlite3_bind_text(l.tls, s.handle, t.param, at, int32(n), sqlite3.SQLITE_STATIC)
		}
		if rc != sqlite3.SQLITE_OK {
			return l.failure(rc)
		}
		t.text = "" // the link keeps no texts alive
		at += uintptr(n)
	}
	return nil
}

// bytesAt returns n bytes of the library's memory.
func bytesAt(at uintptr, n int) []byte {
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), n)
}

// step executes the statement up to its next row, or to its end.
func (s *sqliteStmt) step() (row bool, err error) {
	switch rc := sqlite3.Xsqlite3_step(s.link.tls, s.handle); rc {
	case sqlite3.SQLITE_ROW:
		return true, nil
	case sqlite3.SQLITE_DONE:
		return false, nil
	default:
		return false, s.link.failure(rc)
	}
}

// reset ends an execution. It returns the error of the last step, if there was one.
func (s *sqliteStmt) reset() error {
	rc := sqlite3.Xsqlite3_reset(s.link.tls, s.handle)
	var err error
	if rc != sqlite3.SQLITE_OK {
		err = s.link.failure(rc)
	}
	if s.size > keptText {
		for _, i := range s.bound { // to clear all bindings would have the statement compiled anew
			sqlite3.Xsqlite3_bind_null(s.link.tls, s.handle, i)
		}
		s.free()
	}
	return err
}

// free gives back the memory for texts. No parameter may be used before it is bound again.
func (s *sqliteStmt) free() {
	libc.Xfree(s.link.tls, s.texts)
	s.texts, s.size = 0, 0
}

func (s *sqliteStmt) close() {
	sqlite3.Xsqlite3_finalize(s.link.tls, s.handle)
	s.free()
}

// column reads a column of the present row into dst.
func (s *sqliteStmt) column(i int, dst any) error {
	tls, n := s.link.tls, int32(i)
	switch sqlite3.Xsqlite3_column_type(tls, s.handle, n) {
	case sqlite3.SQLITE_INTEGER:
		v := sqlite3.Xsqlite3_column_int64(tls, s.handle, n)
		switch d := dst.(type) {
		case *int64:
			*d = v
			return nil
		case *int:
			*d = int(v)
			return nil
		}
		return assign(dst, v)
	case sqlite3.SQLITE_TEXT:
		v := string(s.columnBytes(sqlite3.Xsqlite3_column_text(tls, s.handle, n), n))
		if d, ok := dst.(*string); ok {
			*d = v
			return nil
		}
		return assign(dst, v)
	case sqlite3.SQLITE_FLOAT:
		return assign(dst, sqlite3.Xsqlite3_column_double(tls, s.handle, n))
	case sqlite3.SQLITE_BLOB:
		return assign(dst, append([]byte(nil), s.columnBytes(sqlite3.Xsqlite3_column_blob(tls, s.handle, n), n)...))
	}
	return assign(dst, nil)
}

// columnBytes returns the bytes of a text or a blob. They are valid until the next step.
func (s *sqliteStmt) columnBytes(at uintptr, column int32) []byte {
	n := int(sqlite3.Xsqlite3_column_bytes(s.link.tls, s.handle, column))
	if at == 0 || n == 0 {
		return nil
	}
	return bytesAt(at, n)
}
