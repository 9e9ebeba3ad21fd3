#!/usr/bin/env bash
# clean.sh: removes bin and build. It refuses while the demo's local manager runs, because its pid and its data are in
# there: without them `make demo-down` could not stop it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
data=build/demo-state/data
file=build/demo-state/manager.pid

# manager PID: whether it is the demo's manager. The pid may be that of another process by now.
manager() {
	local args
	[[ $1 =~ ^[0-9]+$ ]] || return 1
	args=$(ps -ww -o args= -p "$1" 2>/dev/null) || return 1
	[[ $args == *"--data-dir=$PWD/$data"* || $args == *"--data-dir=$(pwd -P)/$data"* ]]
}

pid=
[ ! -e "$file" ] || pid=$(cat "$file")
if manager "$pid"; then
	echo "clean: the demo's manager still runs (pid $pid), and $file says so. Nothing was removed: run 'make demo-down' first." >&2
	exit 1
fi
rm -rf bin build
