package main

import "strings"

// cell formats a text for a cell of a table.
func cell(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	return strings.NewReplacer("|", `\|`, "<", "&lt;", ">", "&gt;").Replace(s)
}

// code formats a text as a code span. Code spans need no escapes except for the table's own sign.
func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + strings.ReplaceAll(s, "|", `\|`) + "`"
}

func anchor(s string) string { return strings.ToLower(strings.ReplaceAll(s, " ", "-")) }

func firstSentence(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if i := strings.Index(s, ". "); i >= 0 {
		return s[:i+1]
	}
	return s
}

// capital makes the first letter of a sentence a capital, unless the sentence begins with the path of a field.
func capital(s string) string {
	first, _, _ := strings.Cut(s, " ")
	if s == "" || strings.Contains(strings.TrimRight(first, ".:;"), ".") {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
