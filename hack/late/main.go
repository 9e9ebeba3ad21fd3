// Command late delays programs at random, so that a test that depends on timing fails. It writes an overlay of the Go
// runtime (`go build -overlay`) with which the start of a goroutine, the close of a file or connection, and a read or
// write sometimes take longer. The environment variable SKEIN_LATE of the program sets the maximum delay in
// milliseconds; without it nothing is delayed. Bubbles of testing/synctest keep their own time.
//
//	late FOLDER   writes FOLDER/overlay.json and the files that it names, and prints its path
//
// See docs/adr/0036-late-on-purpose.md.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: late FOLDER")
		os.Exit(2)
	}
	file, err := write(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "late:", err)
		os.Exit(1)
	}
	fmt.Println(file)
}

// write creates the overlay in a folder, and returns the path of its list.
func write(folder string) (string, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return "", err
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOROOT: %w", err)
	}
	source := func(file string) string {
		return filepath.Join(strings.TrimSpace(string(root)), "src", filepath.FromSlash(file))
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	replaced := map[string]string{}
	put := func(file, text string) error {
		target := filepath.Join(folder, strings.ReplaceAll(file, "/", "_"))
		replaced[source(file)] = target
		return os.WriteFile(target, []byte(text), 0o644)
	}
	for _, p := range patches {
		text, err := os.ReadFile(source(p.file))
		if err != nil {
			return "", err
		}
		patched, err := p.apply(string(text))
		if err != nil {
			return "", fmt.Errorf("%s: %w", source(p.file), err)
		}
		if err := errors.Join(put(p.file, patched), put(p.added, p.text)); err != nil {
			return "", err
		}
	}
	list, err := json.MarshalIndent(map[string]any{"Replace": replaced}, "", "\t")
	if err != nil {
		return "", err
	}
	file := filepath.Join(folder, "overlay.json")
	return file, os.WriteFile(file, list, 0o644)
}

// errMoved means that the patches were written for another version of Go.
var errMoved = errors.New("is not as hack/late knows it: adjust its patches to this version of Go")

// apply returns the patched text of the file that changes.
func (p patch) apply(text string) (string, error) {
	for _, c := range p.changes {
		if strings.Count(text, c.after) != 1 {
			return "", fmt.Errorf("%q %w", strings.TrimSpace(c.after), errMoved)
		}
		text = strings.Replace(text, c.after, c.after+c.insert, 1)
	}
	return text, nil
}
