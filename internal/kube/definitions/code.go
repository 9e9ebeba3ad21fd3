package definitions

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"

	"k8s.io/utils/lru"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/inspect"
)

// maxCompiled bounds the number of modules in the cache.
const maxCompiled = 2048

// Compile turns source text into a module, or returns an error with the position of the mistake.
type Compile func(filename, source string, lang sandbox.Language) (sandbox.Module, *sandbox.Error)

// compilerFailed is the name of errors of the compiler itself, such as a process that did not start. Errors in the
// source have JavaScript's own names, such as SyntaxError.
const compilerFailed = "Error"

// Code compiles the code of definitions, and remembers the modules.
type Code struct {
	contents *objects.Contents
	cache    *codeCache
}

// codeOwner identifies a piece of code by its object, the object's generation and the field that holds it.
type codeOwner struct {
	kind, namespace, name, uid string
	generation                 int64
	field                      string // the field of the object that holds the code
}

// compiled is the result of compiling one version of one object's code.
type compiled struct {
	version string // of the ConfigMap, or "inline"
	digest  string
	module  sandbox.Module
	err     *definition.NotReadyError
}

// codeCache remembers modules. It finds the entry of an object without reading the source, which may be large.
// Objects with the same source share one module, found by the digest of the source.
type codeCache struct {
	compile  Compile
	turns    *turns
	byOwner  *lru.Cache // codeOwner → *compiled
	byDigest *lru.Cache // string → *compiled
}

func newCodeCache(compile Compile) *codeCache {
	return &codeCache{compile: compile, turns: newTurns(), byOwner: lru.New(maxCompiled), byDigest: lru.New(maxCompiled)}
}

func (c *codeCache) get(owner codeOwner, version, filename, source string, lang sandbox.Language) (*compiled, error) {
	if v, ok := c.byOwner.Get(owner); ok && v.(*compiled).version == version {
		return v.(*compiled).result()
	}
	sum := sha256.Sum256([]byte(string(lang) + "\x00" + filename + "\x00" + source))
	digest := hex.EncodeToString(sum[:])
	entry := &compiled{version: version, digest: digest}
	if _, ok := c.byDigest.Get(digest); !ok {
		// Sources of a namespace are compiled one after the other, so that many of one do not delay those of others.
		defer c.turns.take(owner.namespace)()
	}
	if v, ok := c.byDigest.Get(digest); ok {
		entry.module, entry.err = v.(*compiled).module, v.(*compiled).err
	} else {
		module, err := c.compile(filename, source, lang)
		if err != nil && err.Name == compilerFailed {
			// The compiler failed, not the source, so the result is not remembered.
			return nil, objects.NotReady(skeinv1.ReasonInternalError, "%s could not be compiled: %s", filename, err.Message)
		}
		entry.module = module
		if err != nil {
			entry.err = objects.NotReady(skeinv1.ReasonCompileFailed, "%s", compileMessage(filename, err))
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

// compileMessage formats a compile error as file:line:column: message, the form that editors understand.
func compileMessage(filename string, err *sandbox.Error) string {
	if err.Line == 0 {
		return fmt.Sprintf("%s does not compile: %s", filename, err.Message)
	}
	return fmt.Sprintf("%s:%d:%d: %s (line %d, column %d)", filename, err.Line, err.Column, err.Message, err.Line, err.Column)
}

// invalidCode returns an error that lists why code that compiles cannot be used. Each problem has its position where
// that is known.
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
	return objects.NotReady(skeinv1.ReasonInvalidCode, "%s", strings.Join(lines, "\n"))
}

// position returns the line and the column of an offset, both counted from 1.
func position(source string, offset int) (line, column int) {
	before := source[:offset]
	start := strings.LastIndexByte(before, '\n') + 1
	return 1 + strings.Count(before, "\n"), 1 + utf8.RuneCountInString(before[start:])
}

// compile finds the source and compiles it, or returns the remembered module. It refuses code that cannot be used
// for its declared purpose.
func (code *Code) compile(ctx context.Context, owner codeOwner, src skeinv1.CodeSource, use inspect.Use) (*compiled, error) {
	source, filename, lang := src.Inline, owner.name+".ts", sandbox.TypeScript
	if src.Language == string(sandbox.JavaScript) {
		filename, lang = owner.name+".js", sandbox.JavaScript
	}
	version, field := "inline", owner.field+".configMapKeyRef"
	if ref := src.ConfigMapKeyRef; ref != nil {
		text, v, err := code.contents.ConfigMapKey(ctx, owner.namespace, *ref, field)
		if err != nil {
			return nil, err
		}
		if text == nil {
			return nil, objects.NotReady(skeinv1.ReasonReferenceNotFound, "key %q of ConfigMap %q does not exist: create it, or correct %s", ref.Key, ref.Name, field)
		}
		source, filename, lang, version = string(text), ref.Key, sandbox.TypeScript, v
		if strings.HasSuffix(ref.Key, ".js") || strings.HasSuffix(ref.Key, ".mjs") {
			lang = sandbox.JavaScript
		}
	}
	c, err := code.cache.get(owner, version, filename, source, lang)
	if err != nil {
		return nil, err
	}
	if problems := use.Problems(c.module.Facts); len(problems) > 0 {
		return nil, invalidCode(filename, source, problems)
	}
	return c, nil
}
