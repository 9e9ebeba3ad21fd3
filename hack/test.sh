#!/usr/bin/env bash
# test.sh: runs all tiers in three parallel lanes, announces each, and runs all of them even when one fails. At the end
# it prints one line per tier and the total. hack/testrun/lanes.go says what runs beside what. With CI set, a failed
# test runs once more at the end, alone.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
make=${MAKE:-make}
hack/prerequisites.sh test || exit 1
export PREREQUISITES_MET=1
reports=$PWD/build/reports
rm -rf "$reports"
mkdir -p "$reports"
go build -o build/testrun ./hack/testrun || exit 1

# An interrupt ends the run.
trap 'echo "interrupted" >&2; exit 130' INT TERM

# Build first what every later tier needs, so that this time is reported separately from that of the tests.
"$make" --no-print-directory build-all || exit 1
# Install third-party programs for the tests before the tiers. When lanes install at the same time, one waits for
# the other, and what a package adds to the machine would look like something that a cluster left behind. A tier that
# misses a program reports it itself.
"$make" --no-print-directory --keep-going prefetch || true
export PREBUILT=1

exec build/testrun all -reports "$reports" -make "$make" -spent "${SECONDS}s"
