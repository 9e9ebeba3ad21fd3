package store

// Namespace is a namespace of the cluster. What is kept under its name belongs to the namespace with this UID, and to no later
// one of the same name.
type Namespace struct {
	Name string
	// UID is "" where it is not known. Such a namespace has what any namespace of the name has.
	UID string
}
