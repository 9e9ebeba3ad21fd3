#!/usr/bin/env bash
# run.sh [--down]: prints what the demo does, builds the demo program and becomes it, so that an interrupt reaches it
# directly. NODE says whether the cluster gets a node: auto, true or false.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
devcluster=hack/devcluster/devcluster.sh
# Each checkout has its own cluster, so that demos of two checkouts do not affect each other.
SKEIN_DEMO_CLUSTER=demo-$(pwd -P | cksum | cut -d ' ' -f 1)
export SKEIN_DEMO_CLUSTER

# build builds the demo program beside its place and renames it, so that an interrupt leaves no part of it.
build() {
	mkdir -p build
	hack/step.sh "Build the demo program" go build -o "build/.demo-$$" ./hack/demo
	mv -f "build/.demo-$$" build/demo
}

if [ "${1:-}" = --down ]; then
	# Where no demo ran there is nothing to compile either.
	if [ ! -e build/demo-state ]; then
		exec "$devcluster" down --name "$SKEIN_DEMO_CLUSTER"
	fi
	[ -x build/demo ] || build
	exec build/demo --down
fi

cat <<TEXT
This demo starts a Kubernetes cluster of its own on this machine and installs Skein into it. Then an agent computes figures from
a file of orders in a sandbox, a second agent checks them, a scheduled effect sends a reminder, and deleting the conversation
deletes all of it. The cluster stays until 'make demo-down'; Ctrl-C stops the demo and removes what it started.

The first run fetches and compiles Kubernetes and Skein: 7 to 15 minutes on two processors, 7 GB of caches. Later runs take
about half a minute.

TEXT
build
exec build/demo "$@"
