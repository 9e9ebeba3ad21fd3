package thread

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/skein-dev/skein/internal/store"
)

const (
	defaultFound  = 100 // FIL-05
	maxFound      = 1000
	maxSearched   = 256 << 20 // the most bytes that one search reads
	maxLineShown  = 500
	maxExpression = 1000
	sniffBytes    = 8 << 10
)

// FindFiles lists the files whose path matches a glob, by path, at most 100 (FIL-05).
func (st *State) FindFiles(ctx context.Context, pattern string) (*FindResult, error) {
	return st.FindSome(ctx, pattern, defaultFound)
}

// FindSome is FindFiles with the caller's limit, 1 to 1000.
func (st *State) FindSome(ctx context.Context, pattern string, limit int) (*FindResult, error) {
	if limit < 1 || limit > maxFound {
		return nil, invalid("limit", "give 1 to %d", maxFound)
	}
	glob, err := compileGlob(pattern)
	if err != nil {
		return nil, err
	}
	found := &FindResult{Paths: []string{}}
	for f, err := range st.allFiles(ctx) {
		if err != nil {
			return nil, err
		}
		if !glob.MatchString(f.Path) {
			continue
		}
		if len(found.Paths) == limit {
			found.Truncated = true
			break
		}
		found.Paths = append(found.Paths, f.Path)
	}
	return found, nil
}

// allFiles returns the files of the thread by path, without their metadata. It holds a page of them at a time.
func (st *State) allFiles(ctx context.Context) iter.Seq2[store.File, error] {
	return func(yield func(store.File, error) bool) {
		q := store.FileQuery{Folder: "/", Recursive: true, Limit: maxFound, Bare: true}
		for more := true; more; {
			var files []store.File
			var err error
			if files, more, err = st.svc.store.FilesPage(ctx, st.id, q); err != nil {
				yield(store.File{}, err)
				return
			}
			for _, f := range files {
				if q.After = f.Path; !f.Dir && !yield(f, nil) {
					return
				}
			}
		}
	}
}

// GrepFiles finds the lines of text files that match an RE2 expression, by path, at most 100 (FIL-05).
func (st *State) GrepFiles(ctx context.Context, expression string) (*GrepPage, error) {
	return st.GrepSome(ctx, expression, defaultFound)
}

// GrepSome is GrepFiles with the caller's limit, 1 to 1000. A search that has read 256 MiB ends as if the limit were
// reached.
func (st *State) GrepSome(ctx context.Context, expression string, limit int) (*GrepPage, error) {
	if limit < 1 || limit > maxFound {
		return nil, invalid("limit", "give 1 to %d", maxFound)
	}
	if expression == "" || len(expression) > maxExpression {
		return nil, invalid("pattern", "give a regular expression (RE2) of 1 to %d bytes", maxExpression)
	}
	re, err := regexp.Compile(expression)
	if err != nil {
		return nil, invalid("pattern", "it is not a regular expression that RE2 understands: %v", err)
	}
	page := &GrepPage{Results: []GrepResult{}}
	left, searched := limit, int64(0)
	for f, err := range st.allFiles(ctx) {
		if err != nil {
			return nil, err
		}
		if f.Size == 0 {
			continue
		}
		if searched >= maxSearched {
			page.Truncated = true
			break
		}
		searched += f.Size
		matches, cut, err := st.grepFile(ctx, f.Path, re, left)
		if err != nil {
			return nil, err
		}
		if len(matches) > 0 {
			page.Results = append(page.Results, GrepResult{Path: f.Path, Matches: matches})
			left -= len(matches)
		}
		if cut || f.Size > maxSearched {
			page.Truncated = true
			if n := len(page.Results); n > 0 {
				page.Results[n-1].Truncated = true
			}
			break
		}
	}
	return page, nil
}

// grepFile returns at most limit matches. cut reports that there is at least one more. It stops at the first match past
// the limit, so that a search takes no longer than necessary.
func (st *State) grepFile(ctx context.Context, path string, re *regexp.Regexp, limit int) (matches []GrepMatch, cut bool, err error) {
	rc, _, err := st.OpenFile(ctx, path)
	if rc == nil || err != nil { // removed while the search ran
		return nil, false, err
	}
	defer rc.Close()
	r := bufio.NewReaderSize(io.LimitReader(rc, maxSearched), sniffBytes)
	head, err := r.Peek(sniffBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, err
	}
	if bytes.IndexByte(head, 0) >= 0 { // not text
		return nil, false, nil
	}
	lines := &lineReader{r: r}
	for n := 1; ; n++ {
		line, err := lines.next()
		if errors.Is(err, io.EOF) {
			return matches, false, nil
		}
		if err != nil {
			return nil, false, err
		}
		if !re.Match(line) {
			continue
		}
		if len(matches) == limit {
			return matches, true, nil
		}
		matches = append(matches, GrepMatch{Line: n, Content: shownLine(line)})
	}
}

// lineReader returns lines in bounded memory. Of a longer line, only the first maxLine bytes are searched.
type lineReader struct {
	r   *bufio.Reader
	buf []byte
}

const maxLine = 1 << 20

func (l *lineReader) next() ([]byte, error) {
	l.buf = l.buf[:0]
	for {
		part, err := l.r.ReadSlice('\n')
		if room := maxLine - len(l.buf); len(part) > room {
			l.buf = append(l.buf, part[:room]...)
		} else {
			l.buf = append(l.buf, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(l.buf) > 0, err == nil:
			return bytes.TrimRight(l.buf, "\r\n"), nil
		}
		return nil, err
	}
}

// shownLine returns a line as a search shows it: valid UTF-8, and cut if it is long.
func shownLine(line []byte) string {
	if len(line) > maxLineShown {
		cut := maxLineShown
		for cut > 0 && !utf8.RuneStart(line[cut]) {
			cut--
		}
		return strings.ToValidUTF8(string(line[:cut]), "\uFFFD") + "…"
	}
	return strings.ToValidUTF8(string(line), "\uFFFD")
}
