package main

import (
	"fmt"
	"strings"
)

// label returns the name of a thread, or its id when it has none any more.
func (t *mapThread) label() string {
	if t.name == "" {
		return "T-" + t.id
	}
	return t.name
}

// about returns what people know a thread by, besides its name.
func (t *mapThread) about() string {
	var parts []string
	if t.title != "" {
		parts = append(parts, fmt.Sprintf("%q", safe(t.title)))
	}
	if t.agent != "" {
		parts = append(parts, "agent "+t.agent, count(t.messages, "message"))
	}
	if t.state != "" {
		parts = append(parts, t.state)
	}
	return strings.Join(parts, ", ")
}

// words returns what an edge says.
func (e *mapEdge) words() string {
	text := e.kind
	if e.index >= 0 {
		text += fmt.Sprintf(" at message %d", e.index)
	}
	return text
}

// text draws the map as trees. What led to a thread is above it. A thread that several lead to is drawn below the first.
func (m *threadMap) text() string {
	byID, led := map[string]*mapThread{}, map[string]bool{}
	for _, t := range m.threads {
		byID[t.id] = t
	}
	for _, e := range m.edges {
		if e.kind != edgeMention {
			led[e.to] = true
		}
	}
	var b strings.Builder
	drawn := map[string]bool{}
	draw := func(t *mapThread) {
		m.line(&b, t, "")
		m.below(&b, byID, drawn, t.id, "")
	}
	for _, t := range m.threads {
		if !led[t.id] {
			draw(t)
		}
	}
	for _, t := range m.threads { // only threads that lead to each other in a circle are left
		if !drawn[t.id] {
			draw(t)
		}
	}
	return b.String()
}

func (m *threadMap) line(b *strings.Builder, t *mapThread, how string) {
	mark := ""
	if t.id == m.start {
		mark = "  (this thread)"
	}
	fmt.Fprintf(b, "%s%s%s", how, t.label(), mark)
	if about := t.about(); about != "" {
		fmt.Fprintf(b, "  %s", about)
	}
	b.WriteString("\n")
}

func (m *threadMap) below(b *strings.Builder, byID map[string]*mapThread, drawn map[string]bool, id, indent string) {
	drawn[id] = true
	var edges []*mapEdge
	for i := range m.edges {
		if m.edges[i].from == id {
			edges = append(edges, &m.edges[i])
		}
	}
	for i, e := range edges {
		branch, next := "├─", "│ "
		if i == len(edges)-1 {
			branch, next = "└─", "  "
		}
		to := byID[e.to]
		how := indent + branch + e.words() + ": "
		note := ""
		if e.comment != "" {
			note = fmt.Sprintf("  (%s)", safe(strings.Join(strings.Fields(e.comment), " ")))
		}
		switch {
		case e.kind == edgeMention:
			fmt.Fprintf(b, "%s%s%s\n", how, to.label(), note)
		case drawn[e.to]:
			fmt.Fprintf(b, "%s%s (above)%s\n", how, to.label(), note)
		default:
			var line strings.Builder
			m.line(&line, to, how)
			b.WriteString(strings.TrimSuffix(line.String(), "\n") + note + "\n")
			m.below(b, byID, drawn, e.to, indent+next)
		}
	}
}

// arrows are the lines of Mermaid by kinds of edges.
var arrows = map[string]string{edgeChild: "-->", edgeFork: "-.->", edgeHandoff: "==>", edgeMention: "-.-o"}

// lineStyles are the styles of DOT by kinds of edges.
var lineStyles = map[string]string{edgeChild: "solid", edgeFork: "dashed", edgeHandoff: "bold", edgeMention: "dotted"}

// numbers returns a name for each thread that both languages accept.
func (m *threadMap) numbers() map[string]string {
	out := map[string]string{}
	for i, t := range m.threads {
		out[t.id] = fmt.Sprintf("t%d", i)
	}
	return out
}

// mermaid draws the map as a flowchart.
func (m *threadMap) mermaid() string {
	var b strings.Builder
	b.WriteString("flowchart TB\n")
	names := m.numbers()
	quote := strings.NewReplacer("#", "#35;", `"`, "#quot;", "<", "#lt;", ">", "#gt;", "\n", " ", "|", "#124;")
	for _, t := range m.threads {
		text := quote.Replace(t.label())
		if about := t.about(); about != "" {
			text += "<br/>" + quote.Replace(about)
		}
		fmt.Fprintf(&b, "    %s[\"%s\"]\n", names[t.id], text)
	}
	for _, e := range m.edges {
		fmt.Fprintf(&b, "    %s %s|%s| %s\n", names[e.from], arrows[e.kind], quote.Replace(e.words()), names[e.to])
	}
	if start := names[m.start]; start != "" {
		fmt.Fprintf(&b, "    style %s stroke-width:3px\n", start)
	}
	return b.String()
}

// dot draws the map for Graphviz.
func (m *threadMap) dot() string {
	var b strings.Builder
	b.WriteString("digraph threads {\n    node [shape=box];\n")
	names := m.numbers()
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", " ")
	for _, t := range m.threads {
		text := quote.Replace(t.label())
		if about := t.about(); about != "" {
			text += `\n` + quote.Replace(about)
		}
		extra := ""
		if t.id == m.start {
			extra = ", penwidth=3"
		}
		fmt.Fprintf(&b, "    %s [label=\"%s\"%s];\n", names[t.id], text, extra)
	}
	for _, e := range m.edges {
		fmt.Fprintf(&b, "    %s -> %s [label=\"%s\", style=%s];\n", names[e.from], names[e.to], quote.Replace(e.words()), lineStyles[e.kind])
	}
	b.WriteString("}\n")
	return b.String()
}
