#!/usr/bin/env bash
# conformance.sh [ROW...]: runs the specs of the rows ("MSG" is a family, "FIL-03" one row; the default is all rows)
# and prints one line per row. Rows that only real pods can prove have specs in the e2e tier with their labels. These
# specs run too if this machine can have a node.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
reports=build/reports/rows
rm -rf "$reports"
filter=$(build/testrun rows -print-label-filter "$@")
status=0
build/testrun tier -reports "$reports" -p 1 -label-filter "$filter" conformance || status=1
why=$(hack/can-node.sh)
if [ -z "$why" ]; then
	build/testrun tier -reports "$reports" -p 1 -timeout 60m -label-filter "$filter" e2e || status=1
else
	echo "Rows that need real pods are not looked at: $why" >&2
fi
build/testrun rows -reports "$reports" -tiers conformance,e2e "$@" || status=1
exit "$status"
