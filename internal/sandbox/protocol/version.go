package protocol

import (
	"fmt"
	"strconv"
	"strings"
)

// The versions of the protocol. A manager and a supervisor speak the newest version that both know, and each knows the one before its
// newest. Version 1 had no exchange of versions, and refused messages with more fields than it knew.
//
// From version 2 on, a reader skips what follows the fields that it knows. A release that adds a field to the end of a message therefore
// needs no new version, if readers that skip the field do the right thing. Everything else that changes, such as a new type of frame, gets
// a new version, and is not sent to a peer with which an earlier one was agreed.
const (
	Version = 2
	Oldest  = 1
)

// VersionHeader is the header of a stream that says which version the manager has chosen. Without it, that is version 1. VersionPath
// answers which versions a supervisor knows, as Versions says. Supervisors of version 1 do not have it.
const (
	VersionHeader = "Skein-Protocol"
	VersionPath   = "/v1/version"
)

// Versions returns the oldest and the newest version that this release knows, as VersionPath answers them.
func Versions() string { return fmt.Sprintf("%d %d\n", Oldest, Version) }

// Agree returns the version to speak with a peer that has answered VersionPath with a text.
func Agree(versions string) (int, error) {
	first, second, _ := strings.Cut(strings.TrimSpace(versions), " ")
	oldest, err := strconv.Atoi(first)
	if err != nil {
		return 0, Violation("it says that it knows the versions %q", Cut(versions, MaxName))
	}
	newest, err := strconv.Atoi(second)
	if err != nil || newest < oldest {
		return 0, Violation("it says that it knows the versions %q", Cut(versions, MaxName))
	}
	if newest < Oldest || oldest > Version {
		return 0, fmt.Errorf("it knows the versions %d to %d of the sandbox protocol, and this manager %d to %d", oldest, newest, Oldest, Version)
	}
	return min(newest, Version), nil
}

// Speaks returns an error when this release does not speak the version that the header of a stream asks for.
func Speaks(header string) error {
	if header == "" {
		header = "1"
	}
	if v, err := strconv.Atoi(header); err != nil || v < Oldest || v > Version {
		return fmt.Errorf("the manager speaks version %q of the sandbox protocol, and this sandbox %d to %d: delete the pod, and the pool makes another one",
			Cut(header, MaxName), Oldest, Version)
	}
	return nil
}
