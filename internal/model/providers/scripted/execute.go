package scripted

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/template"
	node "text/template/parse"
)

// text/template executes a template by looking up methods by name. A program that does so keeps every exported method of every type that it may
// convert to an interface, because the linker cannot know which are called: a quarter of the manager. What is below executes the same templates
// over the few types that a script has: those of decoded JSON, view and lastMessage (docs/adr/0086-size-and-start-of-the-manager.md).

// mostNested is how deep templates may call each other, as in text/template.
const mostNested = 100_000

var (
	errBreak    = errors.New("break")
	errContinue = errors.New("continue")
)

// execution is one execution of a template.
type execution struct {
	tmpl   *template.Template
	view   *view
	out    io.Writer
	vars   []variable
	nested int
}

type variable struct {
	name  string
	value any
}

// execute writes what a template says about the conversation.
func (v *view) execute(out io.Writer, t *template.Template) error {
	if t.Tree == nil || t.Root == nil {
		return fmt.Errorf("%q is an incomplete or empty template", t.Name())
	}
	e := &execution{tmpl: t, view: v, out: out, vars: []variable{{"$", v}}}
	return e.walk(v, t.Root)
}

func (e *execution) set(name string, value any) error {
	for i := len(e.vars) - 1; i >= 0; i-- {
		if e.vars[i].name == name {
			e.vars[i].value = value
			return nil
		}
	}
	return fmt.Errorf("undefined variable: %s", name)
}

func (e *execution) get(name string) (any, error) {
	for i := len(e.vars) - 1; i >= 0; i-- {
		if e.vars[i].name == name {
			return e.vars[i].value, nil
		}
	}
	return nil, fmt.Errorf("undefined variable: %s", name)
}

// walk executes a node.
func (e *execution) walk(dot any, n node.Node) error {
	switch n := n.(type) {
	case *node.ListNode:
		for _, child := range n.Nodes {
			if err := e.walk(dot, child); err != nil {
				return err
			}
		}
		return nil
	case *node.TextNode:
		_, err := e.out.Write(n.Text)
		return err
	case *node.ActionNode:
		value, err := e.pipeline(dot, n.Pipe)
		if err != nil || len(n.Pipe.Decl) > 0 {
			return err
		}
		_, err = fmt.Fprint(e.out, printable(value))
		return err
	case *node.IfNode:
		return e.branch(dot, &n.BranchNode, false)
	case *node.WithNode:
		return e.branch(dot, &n.BranchNode, true)
	case *node.RangeNode:
		return e.loop(dot, n)
	case *node.TemplateNode:
		return e.call(dot, n)
	case *node.BreakNode:
		return errBreak
	case *node.ContinueNode:
		return errContinue
	case *node.CommentNode:
		return nil
	}
	return fmt.Errorf("unknown node: %s", n)
}

// printable returns a value as an action prints it.
func printable(value any) any {
	switch value := value.(type) {
	case nil:
		return "<no value>"
	case *view:
		return *value
	}
	return value
}

func (e *execution) branch(dot any, n *node.BranchNode, with bool) error {
	defer e.scope()()
	value, err := e.pipeline(dot, n.Pipe)
	if err != nil {
		return err
	}
	switch {
	case truth(value) && with:
		return e.walk(value, n.List)
	case truth(value):
		return e.walk(dot, n.List)
	case n.ElseList != nil:
		return e.walk(dot, n.ElseList)
	}
	return nil
}

// scope returns what ends the variables that are declared from now on.
func (e *execution) scope() (end func()) {
	mark := len(e.vars)
	return func() { e.vars = e.vars[:mark] }
}

// truth reports whether a value is neither nil, zero nor empty.
func truth(value any) bool {
	truth, _ := template.IsTrue(value)
	return truth
}

func (e *execution) loop(dot any, n *node.RangeNode) error {
	defer e.scope()()
	value, err := e.pipeline(dot, n.Pipe)
	if err != nil {
		return err
	}
	mark, rounds := len(e.vars), 0
	round := func(key, element any) error {
		rounds++
		if err := e.bind(n.Pipe, key, element); err != nil {
			return err
		}
		err := e.walk(element, n.List)
		e.vars = e.vars[:mark]
		if errors.Is(err, errContinue) {
			return nil
		}
		return err
	}
	switch value := value.(type) {
	case nil:
	case []any:
		for i := 0; i < len(value) && err == nil; i++ {
			err = round(i, value[i])
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if err = round(key, value[key]); err != nil {
				break
			}
		}
	case int, int64, uint8:
		most, _ := whole(value)
		if len(n.Pipe.Decl) > 1 {
			return fmt.Errorf("can't use %v to iterate over more than one variable", value)
		}
		for i := int64(0); i < most && err == nil; i++ {
			err = round(nil, i)
		}
	default:
		return fmt.Errorf("range can't iterate over %v", printable(value))
	}
	if err != nil && !errors.Is(err, errBreak) {
		return err
	}
	if rounds == 0 && n.ElseList != nil {
		return e.walk(dot, n.ElseList)
	}
	return nil
}

// bind gives the variables of a range their values. Where it declares them, its pipeline has done so already.
func (e *execution) bind(pipe *node.PipeNode, key, element any) error {
	values := []any{element}
	if len(pipe.Decl) > 1 {
		values = []any{key, element}
	}
	for i, d := range pipe.Decl {
		if !pipe.IsAssign {
			e.vars[len(e.vars)-len(pipe.Decl)+i].value = values[i]
		} else if err := e.set(d.Ident[0], values[i]); err != nil {
			return err
		}
	}
	return nil
}

// call executes another template of the same text.
func (e *execution) call(dot any, n *node.TemplateNode) error {
	t := e.tmpl.Lookup(n.Name)
	if t == nil || t.Tree == nil {
		return fmt.Errorf("template %q not defined", n.Name)
	}
	if e.nested == mostNested {
		return fmt.Errorf("more than %d templates call each other", mostNested)
	}
	value, err := e.pipeline(dot, n.Pipe)
	if err != nil {
		return err
	}
	inner := &execution{tmpl: t, view: e.view, out: e.out, vars: []variable{{"$", value}}, nested: e.nested + 1}
	return inner.walk(value, t.Root)
}
