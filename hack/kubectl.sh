#!/usr/bin/env bash
# kubectl.sh bin: prints the path of Debian's kubectl, which tests use beside the one of the dev cluster's version. Its package,
# kubernetes-client of this machine's release, is unpacked into the cache and not installed: a kubectl that is there stays.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
if [ "${1:-}" != bin ]; then
	sed -n '2,3s/^# \{0,1\}//p' "$0" >&2
	exit 1
fi
if ! command -v apt-get >/dev/null 2>&1; then
	echo "kubectl.sh: Debian's kubectl needs Debian, or a system with its packages" >&2
	exit 1
fi
cache=${SKEIN_CACHE:-${HOME:-/tmp}/.cache/skein}/kubectl
program=$cache/$(. /etc/os-release && echo "${VERSION_CODENAME:-debian}")/kubectl
if [ ! -x "$program" ]; then
	mkdir -p "$cache"
	# Unpacked under another name and renamed, so that an interrupt leaves nothing incomplete.
	new=$cache/.new-$$
	trap 'rm -rf "$new"' EXIT
	mkdir "$new"
	fetch() {
		cd "$new"
		apt-get download kubernetes-client || { flock "$here/need.sh" apt-get update && apt-get download kubernetes-client; }
	}
	"$here/step.sh" "Fetch Debian's kubernetes-client ($(apt-cache show kubernetes-client 2>/dev/null | awk '/^Size:/ { printf "%.0f MB, ", $2 / 1e6; exit }')not installed)" \
		bash -c "$(declare -p here new); $(declare -f fetch); set -euo pipefail; fetch" >&2
	dpkg-deb -x "$new"/*.deb "$new/files"
	mkdir -p "${program%/*}"
	mv "$new/files/usr/bin/kubectl" "$program"
fi
echo "$program"
