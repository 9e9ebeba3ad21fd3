package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// ErrSearchText means that a search text cannot be searched for. The wrapping error says why.
var ErrSearchText = errors.New("nothing to search for")

// MaxRanked is how many matches a search ranks: the newest ones, so that a word which most messages have costs no more in a large database.
// Older matches are not found. A search within a thread or a namespace ranks the newest matches there.
const MaxRanked = 10_000

// Searcher finds messages by their text (THR-16).
type Searcher interface {
	// Search returns matching messages, the best first among the newest MaxRanked, and reports whether there are more. It sees everything that was
	// acknowledged before it began. Inherited messages of a fork are found once, under the thread that they come from.
	// An error that is ErrSearchText is the caller's mistake.
	Search(ctx context.Context, q SearchQuery) (hits []SearchHit, more bool, err error)
	// IndexMessages brings the index up to date. A search does so too, but then has to wait for it.
	IndexMessages(ctx context.Context) error
}

// SearchQuery selects messages by their text.
type SearchQuery struct {
	Text       string   // see ParseSearch
	Namespaces []string // nil for all
	ThreadID   string   // all when empty
	Role       Role     // all when empty
	Limit      int      // 100 when 0
	Offset     int
	// MaxBytes ends the page before its messages take more bytes of memory, but not before its first one. 0 means no limit.
	MaxBytes int64
	// NamespaceUIDs leaves out the messages of threads that Thread.WithinAny does not report; nil for none of them.
	NamespaceUIDs []string
}

// SearchHit is one message that was found.
type SearchHit struct {
	ThreadID  string
	Namespace string
	Name      string // of the Thread object
	Title     string
	Message   Message
	Snippet   string  // part of the content around the first word that matched
	Rank      float64 // higher is better; ranks of different searches do not compare
}

// SearchTerm is one condition of a search. Its words follow each other in the text.
type SearchTerm struct {
	Words  []string // letters and digits
	Prefix bool     // the last word is only a prefix
	Not    bool     // the text must not have the term
}

// maxSearchTerms and maxSearchBytes limit a search.
const (
	maxSearchTerms = 32
	maxSearchBytes = 1000
)

// ParseSearch parses a search text. Words must all occur, in any order. A "phrase in quotes" must occur as it is. A
// -word and a -"phrase" must not occur. An asterisk* makes a prefix. Anything but letters and digits separates words.
// There is no other syntax. The only errors are a search for nothing, a search with only excluded terms, and a search
// that is too long.
func ParseSearch(text string) ([]SearchTerm, error) {
	if len(text) > maxSearchBytes {
		return nil, fmt.Errorf("%w: the search has %d bytes, more than %d", ErrSearchText, len(text), maxSearchBytes)
	}
	var terms []SearchTerm
	wanted := false
	for rest := strings.ToValidUTF8(text, " "); rest != ""; {
		var term SearchTerm
		var piece string
		rest = strings.TrimLeftFunc(rest, unicode.IsSpace)
		if strings.HasPrefix(rest, "-") {
			term.Not, rest = true, strings.TrimLeft(rest, "-")
		}
		if strings.HasPrefix(rest, `"`) {
			piece, rest, _ = strings.Cut(rest[1:], `"`)
			if strings.HasPrefix(rest, "*") {
				piece, rest = piece+"*", rest[1:]
			}
		} else if end := strings.IndexFunc(rest, func(r rune) bool { return unicode.IsSpace(r) || r == '"' }); end >= 0 {
			piece, rest = rest[:end], rest[end:]
		} else {
			piece, rest = rest, ""
		}
		term.Prefix = strings.HasSuffix(piece, "*")
		term.Words = SearchWords(piece)
		if len(term.Words) == 0 {
			continue
		}
		terms = append(terms, term)
		wanted = wanted || !term.Not
	}
	switch {
	case len(terms) > maxSearchTerms:
		return nil, fmt.Errorf("%w: the search has %d terms, more than %d", ErrSearchText, len(terms), maxSearchTerms)
	case !wanted:
		return nil, fmt.Errorf(`%w: give at least one word to look for, such as: invoice "last week" -draft pay*`, ErrSearchText)
	}
	return terms, nil
}

// SearchWords returns the words of a text that can be searched for.
func SearchWords(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) })
}

// snippetRunes is the largest number of runes of a snippet before and after the start of the matching word.
const snippetRunes = 60

// Snippet returns the part of a text around the first word that a search looks for.
func Snippet(text string, terms []SearchTerm) string {
	runes := []rune(text)
	at := 0
	for i := 0; i < len(runes); {
		start := i
		for i < len(runes) && (unicode.IsLetter(runes[i]) || unicode.IsNumber(runes[i])) {
			i++
		}
		if i > start && wantsWord(terms, strings.ToLower(string(runes[start:i]))) {
			at = start
			break
		}
		if i == start {
			i++
		}
	}
	from, to := max(at-snippetRunes, 0), min(at+snippetRunes, len(runes))
	out := strings.Join(strings.Fields(string(runes[from:to])), " ")
	if from > 0 {
		out = "…" + out
	}
	if to < len(runes) {
		out += "…"
	}
	return out
}

// wantsWord reports whether a snippet may begin at a word: it is the first word of a term, or begins with it if the term is a prefix.
func wantsWord(terms []SearchTerm, word string) bool {
	for _, t := range terms {
		if t.Not {
			continue
		}
		first := strings.ToLower(t.Words[0])
		if word == first || t.Prefix && len(t.Words) == 1 && strings.HasPrefix(word, first) {
			return true
		}
	}
	return false
}
