package scripted

import (
	"fmt"
	"strings"
	node "text/template/parse"
)

// piped is the value that a command takes from the one before it.
type piped struct {
	value any
	there bool
}

// pipeline returns the value of a pipeline, and declares or sets its variables.
func (e *execution) pipeline(dot any, pipe *node.PipeNode) (value any, err error) {
	if pipe == nil {
		return nil, nil
	}
	var last piped
	for _, c := range pipe.Cmds {
		if value, err = e.command(dot, c.Args, last); err != nil {
			return nil, err
		}
		last = piped{value, true}
	}
	for _, d := range pipe.Decl {
		if !pipe.IsAssign {
			e.vars = append(e.vars, variable{d.Ident[0], value})
		} else if err := e.set(d.Ident[0], value); err != nil {
			return nil, err
		}
	}
	return value, nil
}

// command returns the value of words of which the first may be a function.
func (e *execution) command(dot any, words []node.Node, last piped) (any, error) {
	if f, ok := words[0].(*node.IdentifierNode); ok {
		return e.apply(dot, f.Ident, words[1:], last)
	}
	if len(words) > 1 || last.there {
		return nil, fmt.Errorf("can't give argument to non-function %s", words[0])
	}
	if _, ok := words[0].(*node.NilNode); ok {
		return nil, fmt.Errorf("nil is not a command")
	}
	return e.value(dot, words[0])
}

// value returns the value of one word.
func (e *execution) value(dot any, word node.Node) (any, error) {
	switch word := word.(type) {
	case *node.DotNode:
		return dot, nil
	case *node.NilNode:
		return nil, nil
	case *node.BoolNode:
		return word.True, nil
	case *node.StringNode:
		return word.Text, nil
	case *node.NumberNode:
		return number(word)
	case *node.FieldNode:
		return fields(dot, word.Ident)
	case *node.VariableNode:
		value, err := e.get(word.Ident[0])
		if err != nil {
			return nil, err
		}
		return fields(value, word.Ident[1:])
	case *node.PipeNode:
		return e.pipeline(dot, word)
	case *node.ChainNode:
		value, err := e.value(dot, word.Node)
		if err != nil {
			return nil, err
		}
		return fields(value, word.Field)
	case *node.IdentifierNode:
		return e.apply(dot, word.Ident, nil, piped{})
	}
	return nil, fmt.Errorf("can't evaluate %s", word)
}

// number returns the value of a constant.
func number(n *node.NumberNode) (any, error) {
	hex := len(n.Text) > 2 && n.Text[0] == '0' && (n.Text[1] == 'x' || n.Text[1] == 'X') && !strings.ContainsAny(n.Text, "pP")
	switch {
	case n.IsComplex:
		return n.Complex128, nil
	case n.IsFloat && !hex && n.Text[0] != '\'' && strings.ContainsAny(n.Text, ".eEpP"):
		return n.Float64, nil
	case n.IsInt:
		return int(n.Int64), nil
	}
	return nil, fmt.Errorf("%s overflows int", n.Text)
}

// fields follows names from a value.
func fields(value any, names []string) (any, error) {
	for _, name := range names {
		var err error
		if value, err = field(value, name); err != nil {
			return nil, err
		}
	}
	return value, nil
}

func field(value any, name string) (any, error) {
	switch value := value.(type) {
	case nil:
		return nil, fmt.Errorf("nil data; no entry for key %q", name)
	case map[string]any:
		element, ok := value[name]
		if !ok {
			return nil, fmt.Errorf("map has no entry for key %q", name)
		}
		return element, nil
	case *view:
		switch name {
		case "Last":
			return value.Last, nil
		case "Arguments":
			return value.Arguments, nil
		case "Session":
			return value.Session, nil
		case "NewMessages":
			return value.NewMessages, nil
		}
	case lastMessage:
		switch name {
		case "Role":
			return value.Role, nil
		case "Content":
			return value.Content, nil
		case "Name":
			return value.Name, nil
		}
	case decimal:
		if name == "String" {
			return value.String(), nil
		}
	}
	return nil, fmt.Errorf("can't evaluate field %s in type %T", name, value)
}

// apply calls a function.
func (e *execution) apply(dot any, name string, words []node.Node, last piped) (any, error) {
	var args []any
	for _, word := range words {
		arg, err := e.value(dot, word)
		if err != nil {
			return nil, err
		}
		if (name == "and" || name == "or") && truth(arg) == (name == "or") {
			return arg, nil // the others are not evaluated
		}
		args = append(args, arg)
	}
	if last.there {
		args = append(args, last.value)
	}
	f, ok := functions[name]
	switch {
	case !ok:
		return nil, fmt.Errorf("%q is not a defined function", name)
	case len(args) < f.least, f.most >= 0 && len(args) > f.most:
		return nil, fmt.Errorf("wrong number of args for %s: got %d", name, len(args))
	}
	value, err := f.call(e.view, args)
	if err != nil {
		return nil, fmt.Errorf("error calling %s: %w", name, err)
	}
	return value, nil
}
