package main

// treeData is an object of a tree as JSON.
type treeData struct {
	Kind     string     `json:"kind"`
	Name     string     `json:"name"`
	UID      string     `json:"uid,omitempty"`
	Status   string     `json:"status,omitempty"`
	Details  string     `json:"details,omitempty"`
	Children []treeData `json:"children,omitempty"`
}

// dataOf returns nodes and what is below them.
func dataOf(nodes []*node) []treeData {
	out := make([]treeData, len(nodes))
	for i, n := range nodes {
		out[i] = treeData{Kind: n.kind, Name: n.name, UID: n.uid, Status: n.status, Details: n.details, Children: dataOf(n.children)}
	}
	return out
}

// treeNames returns KIND/NAME of nodes and of what is below them.
func treeNames(nodes []*node) (names []string) {
	for _, n := range nodes {
		names = append(append(names, n.kind+"/"+n.name), treeNames(n.children)...)
	}
	return names
}

// rootsOrNone returns the roots of a forest that may be nil.
func (f *forest) rootsOrNone() []*node {
	if f == nil {
		return nil
	}
	return f.roots
}
