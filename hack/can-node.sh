#!/usr/bin/env bash
# can-node.sh: says in one line why this machine cannot run a real node, or nothing when it can.
set -euo pipefail
if [ "$(uname -s)" != Linux ]; then
	echo "a real node needs Linux, and this is $(uname -s)"
elif [ "$(id -u)" -ne 0 ]; then
	echo "a real node needs root, and this is user $(id -un): run it with sudo"
fi
