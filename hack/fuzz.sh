#!/usr/bin/env bash
# fuzz.sh [TARGET] [TIME] [PARALLEL]: fuzzes each target whose name or package contains TARGET, one after the other, for TIME. It goes on after
# a target that failed, and fails at the end. An input that fails is kept in testdata/fuzz beside the test: commit it with the fix.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=${1:-} time=${2:-1m} parallel=${3:-1}
failed=() count=0
while IFS=: read -r file line; do
	name=${line#func }
	name=${name%%(*}
	package=./${file%/*}
	[[ "$package.$name" == *"$target"* ]] || continue
	count=$((count + 1))
	echo "==> $package $name"
	go test "$package" -run '^$' -fuzz "^$name\$" -fuzztime "$time" -parallel "$parallel" || failed+=("$package.$name")
done < <(git grep --untracked -E '^func Fuzz[A-Za-z]*\(' -- '*_test.go')
if [ "$count" -eq 0 ]; then
	echo "fuzz: no target has $target in its name: git grep 'func Fuzz' lists them" >&2
	exit 1
fi
if [ "${#failed[@]}" -gt 0 ]; then
	printf 'fuzz: failed: %s\n' "${failed[@]}" >&2
	exit 1
fi
echo "fuzz: $count targets, nothing found"
