#!/usr/bin/env bash
# test.sh: runs all tiers in four parallel lanes, announces each, and runs all of them even when one fails. At the end
# it prints one line per tier and the total. hack/testrun/lanes.go says what runs beside what. With CI set, a failed
# test runs once more at the end, alone.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
make=${MAKE:-make}
hack/prerequisites.sh test || exit 1
cat <<TEXT
This builds all programs, runs all tests in four lanes beside each other, and sums them up at the end. Tests start and remove
Kubernetes clusters of their own. As root on Debian they also install missing packages.

The first run fetches and compiles Kubernetes, Skein and all tests: about 40 minutes on two processors, 18 GB of disk. Later runs take
about half an hour.

TEXT
export PREREQUISITES_MET=1
reports=$PWD/build/reports
rm -rf "$reports"
mkdir -p "$reports"
# An interrupt ends the run.
trap 'echo "interrupted" >&2; exit 130' INT TERM

"$make" --no-print-directory build/testrun || exit 1

# Build first what every later tier needs, so that this time is reported separately from that of the tests.
"$make" --no-print-directory build-all || exit 1
# Install third-party programs for the tests before the tiers. When lanes install at the same time, one waits for
# the other, and what a package adds to the machine would look like something that a cluster left behind. A tier that
# misses a program reports it itself.
"$make" --no-print-directory --keep-going prefetch || true
export PREBUILT=1

# Where memory is slow, half of the run would be page faults (docs/adr/0037-cold-builds.md).
exec hack/devcluster/devcluster.sh huge-pages build/testrun all -reports "$reports" -make "$make" -spent "${SECONDS}s"
