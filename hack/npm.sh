#!/usr/bin/env bash
# npm.sh install NAME: installs third-party packages from the npm registry that tests or generators use: those that
# hack/npm/NAME pins, with the sums in its lock file. They are fetched into the cache once per version of the lock
# file, and none of their scripts is run. It prints the folder that contains node_modules.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
name=${2:-}
if [ "${1:-}" != install ] || [ ! -e "$here/npm/$name/package-lock.json" ]; then
	sed -n '2,4s/^# \{0,1\}//p' "$0" >&2
	echo "There are: $(ls "$here/npm")" >&2
	exit 1
fi
"$here/need.sh" node=nodejs npm=npm >&2 || exit 1
cache=${SKEIN_CACHE:-${HOME:-/tmp}/.cache/skein}/npm/$name
dir=$cache/$(cat "$here/npm/$name"/package*.json | cksum | cut -d ' ' -f 1)
if [ ! -e "$dir/node_modules" ]; then
	mkdir -p "$cache"
	# Fetched under another name and renamed, so that an interrupt leaves nothing incomplete.
	new=$cache/.new-$$
	trap 'rm -rf "$new"' EXIT
	mkdir "$new"
	cp "$here/npm/$name"/package*.json "$new"
	"$here/step.sh" "Fetch $name" npm ci --prefix "$new" --no-audit --no-fund --ignore-scripts --loglevel error >&2
	mv -T "$new" "$dir" 2>/dev/null || [ -e "$dir/node_modules" ] # another was faster
fi
echo "$dir"
