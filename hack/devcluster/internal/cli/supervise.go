package cli

import (
	"context"
	"errors"
	"os"
	"syscall"

	"github.com/skein-dev/skein/hack/devcluster/internal/layout"
	"github.com/skein-dev/skein/hack/devcluster/internal/supervisor"
)

// superviseCommand is the hidden command that up starts. Its argument is the run directory.
const superviseCommand = "supervise"

// progressFD is the pipe to up.
const progressFD = 3

func supervise(ctx context.Context, args []string, start supervisor.StartControlPlane) (int, error) {
	if len(args) != 1 {
		return 2, errors.New("this command is up's own")
	}
	syscall.CloseOnExec(progressFD)
	collectLessGarbage()
	if err := supervisor.Run(ctx, layout.Dir(args[0]), start, os.NewFile(progressFD, "progress")); err != nil {
		return 1, err
	}
	return 0, nil
}
