#!/usr/bin/env bash
# test.sh: all tiers, in two lanes beside each other, each announced, all of them even when one fails; last, one line a tier and
# the sum. hack/testrun/lanes.go says what runs beside what. With CI set, a test that failed runs once more at the end, alone.
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

# What every later tier needs is built first, so that its time is told apart from that of the tests.
"$make" --no-print-directory build-all || exit 1
# What tests need of others is installed before them: where two lanes install at once, one waits for the other, and what a package
# adds to the machine would look like something that a cluster has left behind. A tier that misses something says so itself.
"$make" --no-print-directory --keep-going prefetch || true
export PREBUILT=1

exec build/testrun all -reports "$reports" -make "$make" -spent "${SECONDS}s"
