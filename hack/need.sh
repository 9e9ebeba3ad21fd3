#!/usr/bin/env bash
# need.sh PROGRAM=PACKAGE...: makes sure that programs are installed. As root on Debian it installs the packages of
# missing programs. Elsewhere it prints what to install, and fails.
set -euo pipefail
missing=()
for pair in "$@"; do
	PATH=$PATH:/usr/sbin:/sbin command -v "${pair%%=*}" >/dev/null 2>&1 || missing+=("${pair#*=}")
done
[ ${#missing[@]} -eq 0 ] && exit 0
if ! command -v apt-get >/dev/null 2>&1; then
	echo "These are missing: ${missing[*]}. Install them with your system's package manager and try again." >&2
	exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
	echo "These Debian packages are missing: run 'sudo apt-get install ${missing[*]}' and try again." >&2
	exit 1
fi
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
# One at a time, because apt-get does not wait for another apt-get. The lock is on this file, so that it leaves no
# lock file.
exec 9<"$root/hack/need.sh"
flock 9
export DEBIAN_FRONTEND=noninteractive
install() { apt-get install -y --no-install-recommends "${missing[@]}"; }
if ! apt-cache show "${missing[@]}" >/dev/null 2>&1; then
	"$root/hack/step.sh" "Read the lists of Debian packages" apt-get update 9<&-
fi
"$root/hack/step.sh" "Install ${missing[*]}" bash -c "$(declare -p missing); $(declare -f install); install" 9<&- # nothing that a package starts keeps the lock
