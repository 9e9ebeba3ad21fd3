//go:build !linux

package node

import (
	"context"
	"errors"

	"github.com/skein-dev/skein/hack/devcluster/internal/layout"
)

var errLinux = errors.New("a node needs Linux")

// Node is the node of a cluster. There is none on this system.
type Node struct{}

// Possible returns why there can be no node here.
func Possible() error { return errLinux }

// Claim fills in what the control plane needs.
func Claim(cfg *layout.Config) error {
	setDefaults(cfg)
	return nil
}

// Start returns an error.
func Start(layout.Dir, layout.Config, func(string)) (*Node, error) { return nil, errLinux }

// Cleanup has nothing to do.
func Cleanup(layout.Dir, layout.Config) error { return nil }

// Init and Manage would be the node's own processes.
func Init(layout.Dir) error   { return errLinux }
func Manage(layout.Dir) error { return errLinux }

// PID, Ended, APIReady, WaitUsable and Stop are never called, because Start returns no Node.
func (*Node) PID() int                         { return 0 }
func (*Node) Ended() <-chan error              { return nil }
func (*Node) APIReady() error                  { return errLinux }
func (*Node) WaitUsable(context.Context) error { return errLinux }
func (*Node) Stop() error                      { return errLinux }

// Hidden commands of the node's processes.
const (
	InitCommand   = "node-init"
	ManageCommand = "node-manage"
)

// Daemons is empty.
var Daemons []string

// PIDs returns none.
func PIDs(layout.Dir, int) map[string]int { return nil }

// Import returns an error.
func Import(context.Context, layout.Dir, layout.Config, string) error { return errLinux }

// HostNameservers returns none, because none are needed.
func HostNameservers() []string { return nil }
