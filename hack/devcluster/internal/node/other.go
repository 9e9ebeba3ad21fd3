//go:build !linux

package node

import (
	"context"
	"errors"

	"github.com/skein-dev/skein/hack/devcluster/internal/layout"
)

var errLinux = errors.New("a node needs Linux")

// Node is the node of a cluster; there is none on this system.
type Node struct{}

// Possible says why there can be no node here.
func Possible() error { return errLinux }

// Claim fills in what the control plane needs.
func Claim(cfg *layout.Config) error {
	setDefaults(cfg)
	return nil
}

// Start gives an error.
func Start(layout.Dir, layout.Config, func(string)) (*Node, error) { return nil, errLinux }

// Cleanup has nothing to do.
func Cleanup(layout.Dir, layout.Config) error { return nil }

// Init and Manage are the node's own processes.
func Init(layout.Dir) error   { return errLinux }
func Manage(layout.Dir) error { return errLinux }

// PID, Ended, APIReady, WaitUsable and Stop are never called, as Start gives no Node.
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

// Daemons are none.
var Daemons []string

// PIDs gives none.
func PIDs(layout.Dir, int) map[string]int { return nil }

// Import gives an error.
func Import(context.Context, layout.Dir, layout.Config, string) error { return errLinux }

// HostNameservers are not needed.
func HostNameservers() []string { return nil }
