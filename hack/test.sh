#!/usr/bin/env bash
# test.sh: all tiers in order, each announced, all of them even when one fails; last, one line a tier and the sum.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
make=${MAKE:-make}
reports=$PWD/build/reports
began=$SECONDS
rm -rf "$reports"
mkdir -p "$reports"
go build -o build/testrun ./hack/testrun || exit 1

# An interrupt ends the run; the tier under way has cleaned up by then.
trap 'echo "interrupted" >&2; exit 130' INT TERM

tier() {
	echo
	echo "=== $1: $2"
	"${@:3}" || true
}

# What every later tier needs is built first, so that its time is told apart from that of the tests.
"$make" --no-print-directory build cluster-build || exit 1
export PREBUILT=1

tier verify "generated files, go.mod, formatting" build/testrun check -reports "$reports" verify -- "$make" --no-print-directory verify
tier lint "golangci-lint" build/testrun check -reports "$reports" lint -- "$make" --no-print-directory lint
tier unit "packages that need nothing around them" "$make" --no-print-directory test-unit
tier integration "packages that need a control plane" "$make" --no-print-directory test-integration
tier v8 "the sandbox's suites on its other engine" "$make" --no-print-directory test-v8
tier conformance "the rows of the specification, through the public API" "$make" --no-print-directory test-conformance
tier e2e "real pods on a real node" "$make" --no-print-directory test-e2e
tier cluster "the dev cluster itself" "$make" --no-print-directory test-cluster

echo
echo "=== the rows of the specification"
build/testrun rows -reports "$reports" -tiers conformance,e2e
echo
echo "=== all tiers, $((SECONDS - began))s"
build/testrun sum -reports "$reports"
