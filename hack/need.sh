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
# In a session of its own, so that an interrupt does not leave packages that are half installed. It ends by itself, and the next
# apt-get waits for it.
install() { setsid -w apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 "${missing[@]}"; }

# size prints how much apt-get is about to fetch. --print-uris installs nothing, whatever the answers to questions would be.
size() {
	apt-get install --print-uris -qq --no-install-recommends "${missing[@]}" 2>/dev/null |
		awk '{ n++; bytes += $3 } END { if (n > 0) printf ": %d packages, %.1f MB to fetch", n, bytes / 1e6 }' || true
}

if ! apt-cache show "${missing[@]}" >/dev/null 2>&1; then
	"$root/hack/step.sh" "Read the lists of Debian packages" apt-get update 9<&-
fi
echo "==> Programs are missing, and apt-get installs ${missing[*]} with what it needs$(size)" >&2
"$root/hack/step.sh" "Install ${missing[*]}" bash -c "$(declare -p missing); $(declare -f install); install" 9<&- # nothing that a package starts keeps the lock
