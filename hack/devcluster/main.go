// Devcluster is a real Kubernetes in one binary: etcd, the API server, the controller manager and the scheduler. Built
// from the folder withnode, it also has a real node on Linux with root.
package main

import "github.com/skein-dev/skein/hack/devcluster/internal/program"

func main() { program.Main() }
