#!/usr/bin/env bash
# e2e.sh [FLAGS]: runs the e2e tier with the flags of `testrun tier`, or skips it with a loud notice where no node can
# run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
why=$(hack/can-node.sh)
if [ -n "$why" ]; then
	line=$(printf '!%.0s' {1..78})
	printf '%s\n!! THE E2E TIER IS SKIPPED: %s\n%s\n' "$line" "$why" "$line" >&2
	exec build/testrun tier -skip-because "$why" "$@" e2e
fi
exec build/testrun tier "$@" e2e
