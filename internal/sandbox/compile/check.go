package compile

import (
	"fmt"

	"github.com/skein-dev/skein/internal/sandbox"
)

func checkSource(filename, source string) *sandbox.Error {
	if len(source) > MaxSource {
		return &sandbox.Error{
			Name:    "RangeError",
			Message: fmt.Sprintf("the source has %d bytes: at most %d are compiled", len(source), MaxSource),
			Stack:   filename,
		}
	}
	return nil
}
