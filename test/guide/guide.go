// Package guide reads the pages that users read, README and docs, so that tests can hold them to what is true.
package guide

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Block is a fenced block of a page.
type Block struct {
	// Page is the file, relative to the root of the repository, and Line the number of the block's first line in it.
	Page string
	Line int
	// Language is what follows the opening fence, such as "sh" or "yaml".
	Language string
	// Text is what the fences enclose, without the indentation that they have themselves.
	Text string
}

// String returns where the block is, as PAGE:LINE.
func (b Block) String() string { return fmt.Sprintf("%s:%d", b.Page, b.Line) }

// Pages returns the files of the guide below the root of the repository, by their paths relative to it.
func Pages(root string) ([]string, error) {
	var pages []string
	for _, pattern := range []string{"README.md", "docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		for _, path := range found {
			page, err := filepath.Rel(root, path)
			if err != nil {
				return nil, err
			}
			pages = append(pages, page)
		}
	}
	return pages, nil
}

// Blocks returns the fenced blocks of a page, in order.
func Blocks(root, page string) ([]Block, error) {
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		return nil, err
	}
	var (
		blocks []Block
		open   *Block
		indent string
		body   strings.Builder
	)
	for i, line := range strings.Split(string(text), "\n") {
		trimmed := strings.TrimLeft(line, " ")
		switch {
		case open == nil && strings.HasPrefix(trimmed, "```"):
			indent = line[:len(line)-len(trimmed)]
			open = &Block{Page: page, Line: i + 2, Language: strings.TrimSpace(trimmed[3:])}
			body.Reset()
		case open == nil:
		case strings.TrimSpace(line) == "```":
			open.Text = body.String()
			blocks = append(blocks, *open)
			open = nil
		default:
			body.WriteString(strings.TrimPrefix(line, indent) + "\n")
		}
	}
	if open != nil {
		return nil, fmt.Errorf("%s: the block is not closed", *open)
	}
	return blocks, nil
}
