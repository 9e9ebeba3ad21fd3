package store

import "context"

// Namespace is a namespace of the cluster. What is kept under its name belongs to the namespace with this UID, and to no later
// one of the same name.
type Namespace struct {
	Name string
	// UID is "" where it is not known. Such a namespace has what any namespace of the name has.
	UID string
}

// OwnerStore knows to which namespace each row with the name of a namespace belongs. Rows of an earlier release belong to none: they have
// no UID of a namespace.
type OwnerStore interface {
	// Cluster returns the UID that SetCluster has set; "" when it was never called.
	Cluster(ctx context.Context) (string, error)
	// SetCluster says which cluster's namespaces the rows belong to.
	SetCluster(ctx context.Context, uid string) error
	// Owners returns the namespaces that rows belong to.
	Owners(ctx context.Context) ([]Namespace, error)
	// FormerOwners returns the namespaces with a UID that have key-values, sums of usage, or threads that are not retained. They are in the
	// order of their names, and those of one name in the order in which they were used last.
	FormerOwners(ctx context.Context) ([]Namespace, error)
	// GiveThreads replaces the namespace UID of a bounded number of threads. The threads are those of the namespace from, which has a UID: the
	// retained ones if retained is set, and the others if it is not. uid is the new UID, or "" for none. It returns how many threads it has
	// changed, and 0 when none are left.
	GiveThreads(ctx context.Context, from Namespace, uid string, retained bool) (int64, error)
	// GiveRows gives a bounded number of rows of a namespace to the one of its name with a UID; "" takes them away. It returns how many, 0 when
	// none are left.
	GiveRows(ctx context.Context, from Namespace, uid string) (int64, error)
	// RemoveRows removes a bounded number of rows of a namespace, which has a UID. It returns how many, 0 when none are left.
	RemoveRows(ctx context.Context, ns Namespace) (int64, error)
}
