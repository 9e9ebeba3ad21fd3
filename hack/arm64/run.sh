#!/usr/bin/env bash
# run.sh [SUITE...]: runs test suites of the sandbox on arm64, in a machine that qemu-system-aarch64 emulates, with a
# Debian kernel and a control group v2 that limits memory. A suite is a package below internal/sandbox; the default is
# supervisor and v8, and hostiletest takes half an hour. It needs Debian and its mirrors; as root it installs qemu
# itself. VERBOSE=1 prints the console. FILTER is a Ginkgo label filter, MEMORY the limit of the group in bytes, and
# TIMEOUT how long the machine may run (45m).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
here=$root/hack/arm64
suites=("$@")
[ ${#suites[@]} -gt 0 ] || suites=(supervisor v8)
memory=${MEMORY:-536870912}
cache=${SKEIN_CACHE:-${HOME:-/tmp}/.cache/skein}/arm64
build=$root/build/arm64

cat >&2 <<'END'
==> arm64 in an emulated machine. What it shows: the seccomp filters, resource limits, memory limits by a control
    group v2 and runs of code of the arm64 programs, on a kernel of Debian. What it cannot: gVisor and pods (there
    is no container runtime in it), V8 itself (hack/deno.sh has Deno for x86-64 only: the suite v8 is about its
    filters and its keeper), speed (every instruction is emulated), and what only real arm64 machines do.
END

for tool in apt-get dpkg-deb; do
	command -v $tool >/dev/null || { echo "run.sh: $tool is missing: the kernel comes from Debian's packages, so run this on Debian" >&2; exit 1; }
done
"$root/hack/need.sh" qemu-system-aarch64=qemu-system-arm cpio=cpio

# Use separate apt state, so that this machine's lists and architectures stay as they are. apt checks signatures and
# sums.
apt=$cache/apt
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
: >"$apt/status"
options=(-o "Dir::State=$apt" -o "Dir::State::lists=$apt/lists" -o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt/cache"
	-o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Dir::Etc::sourceparts=-
	-o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false)
# Only Debian's own sources, because others may not have packages for arm64.
for file in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list; do
	[ ! -e "$file" ] || { options+=(-o "Dir::Etc::sourcelist=$file"); break; }
done
# apt drops its privileges to a user who cannot read a home directory.
[ "$(id -u)" -ne 0 ] || options+=(-o APT::Sandbox::User=root)

# packages fetches once what the machine boots: the kernel without hardware drivers, and one static program.
packages() {
	cd "$1"
	apt-get "${options[@]}" update
	local kernel
	kernel=$(apt-cache "${options[@]}" depends linux-image-cloud-arm64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p')
	apt-get "${options[@]}" download "${kernel:?Debian has no linux-image-cloud-arm64 here}" busybox-static
	dpkg-deb --fsys-tarfile linux-image-*.deb | tar x --wildcards './boot/vmlinuz-*'
	dpkg-deb --fsys-tarfile busybox-static_*.deb | tar x ./bin/busybox ./usr/bin/busybox 2>/dev/null || true
	mv boot/vmlinuz-* vmlinuz
	mv bin/busybox busybox 2>/dev/null || mv usr/bin/busybox busybox
	rm -rf boot bin usr ./*.deb
}
if [ ! -e "$cache/machine/busybox" ]; then
	# Created under another name and renamed, so that an interrupt leaves nothing incomplete.
	new=$(mktemp -d "$cache/.new.XXXXXX")
	trap 'rm -rf "$new"' EXIT
	"$root/hack/step.sh" "Fetch a kernel for arm64" bash -c "set -euo pipefail; $(declare -p options); $(declare -f packages); packages $(printf %q "$new")"
	rm -rf "$cache/machine"
	mv "$new" "$cache/machine"
fi

rm -rf "$build"
mkdir -p "$build/root/bin" "$build/root/tests" "$build/root/sys"
programs() {
	export CGO_ENABLED=0 GOOS=linux GOARCH=arm64
	cd "$root"
	go build -p "${JOBS:-2}" -ldflags '-s -w' -o "$build/root/bin/" ./cmd/sandbox ./cmd/sandbox-child
	# By full name, because the Go tool takes v8 for the version of a module.
	for suite in "${suites[@]}"; do
		go test -c -p "${JOBS:-2}" -ldflags '-s -w' -o "$build/root/tests/$suite.test" "./internal/sandbox/$suite"
	done
}
"$root/hack/step.sh" "Build the programs for arm64" bash -c "set -euo pipefail; $(declare -p root build suites); $(declare -f programs); programs"
install -m 0755 "$here/init" "$build/root/init"
install -m 0755 "$cache/machine/busybox" "$build/root/bin/busybox"
printf '%s=%q\n' memory "$memory" suites "${suites[*]}" filter "${FILTER:-}" >"$build/root/tests/settings"
(cd "$build/root" && find . | cpio --quiet -o -H newc | gzip -1) >"$build/initrd.gz"

log=$build/console.log
show=(grep --line-buffered -aE '^skein-arm64: suite|control groups v2|^Ran [0-9]+ of|\[FAIL\]|Kernel panic')
[ -z "${VERBOSE:-}" ] || show=(cat)
machine=(qemu-system-aarch64 -machine virt -cpu max,pauth-impdef=on -smp 2 -m 3072 -nic none -display none -monitor none -serial stdio -no-reboot
	-kernel "$cache/machine/vmlinuz" -initrd "$build/initrd.gz" -append 'console=ttyAMA0 quiet panic=-1')
began=$SECONDS
timeout "${TIMEOUT:-45m}" "${machine[@]}" </dev/null | stdbuf -o0 tr -d '\r' | tee "$log" | "${show[@]}" | sed -u 's/^skein-arm64: //' || true
status=$(sed -n 's/^skein-arm64: exit \([0-9]*\)$/\1/p' "$log")
if [ "$status" = 0 ]; then
	echo "==> arm64: all suites passed ($((SECONDS - began))s in the machine)"
	exit 0
fi
[ -n "${VERBOSE:-}" ] || { grep -aA 30 'Summarizing' "$log" || tail -n 40 "$log"; } >&2
what="the machine did not come to its end (it has ${TIMEOUT:-45m})"
[ -z "$status" ] || what="$status of ${#suites[@]} suites failed"
echo "==> arm64: $what; its console: $log" >&2
exit 1
