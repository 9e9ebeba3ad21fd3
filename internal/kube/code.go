package kube

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"

	"k8s.io/utils/lru"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/inspect"
)

// maxCompiled bounds how many modules are remembered.
const maxCompiled = 2048

// Compile turns a source text into a module, or says where it is wrong.
type Compile func(filename, source string, lang sandbox.Language) (sandbox.Module, *sandbox.Error)

// compilerFailed is the name of an error of the compiler itself, such as a process that did not start. Those
// of a source have the names that JavaScript gives them.
const compilerFailed = "Error"

// codeOwner is the object that a piece of code belongs to, in one generation.
type codeOwner struct {
	kind, namespace, name, uid string
	generation                 int64
	field                      string // where in the object the code is
}

// compiled is the outcome for one version of one object's code.
type compiled struct {
	version string // of the ConfigMap, or "inline"
	digest  string
	module  sandbox.Module
	err     *definition.NotReadyError
}

// codeCache remembers modules. An object's entry is found without looking at its source, which may be
// large; the modules themselves are shared by the digest of the source.
type codeCache struct {
	compile  Compile
	byOwner  *lru.Cache // codeOwner → *compiled
	byDigest *lru.Cache // string → *compiled
}

func newCodeCache(compile Compile) *codeCache {
	return &codeCache{compile: compile, byOwner: lru.New(maxCompiled), byDigest: lru.New(maxCompiled)}
}

func (c *codeCache) get(owner codeOwner, version, filename, source string, lang sandbox.Language) (*compiled, error) {
	if v, ok := c.byOwner.Get(owner); ok && v.(*compiled).version == version {
		return v.(*compiled).result()
	}
	sum := sha256.Sum256([]byte(string(lang) + "\x00" + filename + "\x00" + source))
	digest := hex.EncodeToString(sum[:])
	entry := &compiled{version: version, digest: digest}
	if v, ok := c.byDigest.Get(digest); ok {
		entry.module, entry.err = v.(*compiled).module, v.(*compiled).err
	} else {
		module, err := c.compile(filename, source, lang)
		if err != nil && err.Name == compilerFailed {
			// It says nothing of the source, so it is not remembered.
			return nil, notReady(skeinv1.ReasonInternalError, "%s could not be compiled: %s", filename, err.Message)
		}
		entry.module = module
		if err != nil {
			entry.err = notReady(skeinv1.ReasonCompileFailed, "%s", compileMessage(filename, err))
		}
		c.byDigest.Add(digest, entry)
	}
	c.byOwner.Add(owner, entry)
	return entry.result()
}

func (c *compiled) result() (*compiled, error) {
	if c.err != nil {
		return nil, c.err
	}
	return c, nil
}

// compileMessage is in the form that editors and people know: file:line:column: what.
func compileMessage(filename string, err *sandbox.Error) string {
	if err.Line == 0 {
		return fmt.Sprintf("%s does not compile: %s", filename, err.Message)
	}
	return fmt.Sprintf("%s:%d:%d: %s (line %d, column %d)", filename, err.Line, err.Column, err.Message, err.Line, err.Column)
}

// invalidCode says what keeps code that compiles from being used, each problem with its place where it has one.
func invalidCode(filename, source string, problems []inspect.Problem) *definition.NotReadyError {
	lines := make([]string, 0, len(problems))
	for _, p := range problems {
		line := filename + ": " + p.Message
		if p.Near != nil {
			if at := p.Near.FindStringSubmatchIndex(source); at != nil {
				row, column := position(source, at[2])
				line = fmt.Sprintf("%s:%d:%d: %s", filename, row, column, p.Message)
			}
		}
		lines = append(lines, line)
	}
	return notReady(skeinv1.ReasonInvalidCode, "%s", strings.Join(lines, "\n"))
}

// position is the line and the column of an offset, both from 1.
func position(source string, offset int) (line, column int) {
	before := source[:offset]
	start := strings.LastIndexByte(before, '\n') + 1
	return 1 + strings.Count(before, "\n"), 1 + utf8.RuneCountInString(before[start:])
}
