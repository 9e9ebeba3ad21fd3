#!/bin/sh
# prerequisites.sh [build|demo|test]: reports what this machine lacks for a command, all of it at once and each with its remedy, before
# any work begins. It prints nothing when all is well. It needs no Go, and takes a fraction of a second.
#   NODE=auto|true|false   whether a real node is wanted, as for `make demo`
set -u
what=${1:-build}
cd "$(dirname "$0")/.." || exit 1

# What each command needs: free disk space in GB for the first time and for later, and memory in GB. Measured: after
# `make demo` and `make test`, Go's build cache has 11 GB, its modules 5 GB and the dev cluster 1 GB. One link takes
# 2.8 GB of memory.
case $what in
build) first=6 later=1 memory=4 ;;
demo) first=10 later=2 memory=6 ;;
test) first=18 later=4 memory=8 ;;
*)
	echo "prerequisites.sh: no command $what: use build, demo or test" >&2
	exit 2
	;;
esac
# The oldest supported kernels: for everything, and for a node, because kube-proxy implements its Services with
# nftables.
kernel_needed=4.19 node_kernel_needed=5.13

# Tests replace /proc, /sys and /dev with another tree.
root=${PREREQUISITES_ROOT:-}

problems=0
# problem TEXT REMEDY
problem() {
	[ "$problems" -gt 0 ] || echo "This machine lacks what \`make $what\` needs:" >&2
	problems=$((problems + 1))
	printf '  - %s\n    %s\n' "$1" "$2" >&2
}

has() { command -v "$1" >/dev/null 2>&1; }

# bounded SECONDS COMMAND... ends a command that takes too long.
bounded() {
	if has timeout; then
		timeout "$@"
	else
		shift
		"$@"
	fi
}

# at_least VERSION MINIMUM compares versions such as 1.26.8 by their first two numbers.
at_least() {
	have_major=${1%%.*}
	have_minor=${1#*.}
	have_minor=${have_minor%%[!0-9]*}
	[ "$have_major" -gt "${2%%.*}" ] 2>/dev/null || { [ "$have_major" -eq "${2%%.*}" ] 2>/dev/null && [ "${have_minor:-0}" -ge "${2#*.}" ]; }
}

# install PACKAGE prints how to install a package here.
install() {
	if has apt-get; then
		[ "$(id -u)" -eq 0 ] && echo "Run: apt-get install $1" || echo "Run: sudo apt-get install $1"
	elif has dnf; then
		echo "Run: sudo dnf install $1"
	elif has apk; then
		echo "Run: apk add $1"
	else
		echo "Install $1 with the package manager of your system."
	fi
}

# The machine.

system=$(uname -s) machine=$(uname -m)
kernel=$(uname -r)
if [ "$system" != Linux ]; then
	problem "Linux: this is $system." "Use a Linux machine, a virtual machine, or a container."
else
	at_least "$kernel" $kernel_needed || problem "Linux $kernel_needed or later: this is $kernel." "Update the kernel, or use another machine."
fi
case $machine in
x86_64 | amd64 | aarch64 | arm64) ;;
*) problem "An x86-64 or arm64 processor: this is $machine." "Use another machine: the sandboxes have no programs for this one." ;;
esac

# The node. Without one, the code of threads runs in local processes.

# no_node prints why there can be no node here.
no_node() {
	hack/can-node.sh
	[ "$system" = Linux ] && [ "$(id -u)" -eq 0 ] || return 0
	at_least "$kernel" $node_kernel_needed || echo "a real node needs Linux $node_kernel_needed or later, and this is $kernel"
}
node=${NODE:-auto}
case $what/$node in
build/* | demo/false) node=false ;;
*)
	why=$(no_node | paste -s -d ';' - | sed 's/;/; /g')
	if [ -n "$why" ] && [ "$what/$node" = demo/true ]; then
		problem "A real node, which NODE=true asks for: $why." "Mend that, or leave NODE=true out: code runs in local processes then."
	elif [ -n "$why" ]; then
		node=false
		case $what in
		demo) echo "Without a real node, the code of threads runs in local processes: $why." >&2 ;;
		test) echo "Without a real node, the tests that need one are skipped: $why." >&2 ;;
		esac
	fi
	;;
esac

# Programs.

has git || problem "git" "$(install git)"
# make itself runs this script, under any name.
[ -n "${MAKELEVEL:-}" ] || has make || problem "make" "$(install make)"
# Only the programs of a node include C code.
[ "$node" = false ] || has gcc || problem "gcc, to compile runc for the node" "$(install gcc)"
# Root on Debian gets these by itself when a test needs them (hack/need.sh).
if [ "$what" = test ] && { [ "$(id -u)" -ne 0 ] || ! has apt-get; }; then
	has node || problem "node, for tests of TypeScript" "$(install nodejs)"
	has npm || problem "npm, for tests of TypeScript" "$(install npm)"
	has openssl || problem "openssl, to check what is fetched" "$(install openssl)"
	hack/postgres.sh bin >/dev/null 2>&1 || problem "PostgreSQL's server" "$(install postgresql)"
	hack/chromium.sh bin >/dev/null 2>&1 || problem "Chromium, for tests of the console's page" "$(install chromium)"
fi
go_needed=$(sed -n 's/^go \([0-9]*\.[0-9]*\).*/\1/p' go.mod)
go=
if ! has go; then
	problem "Go $go_needed or later: there is no go in PATH." "Install it from https://go.dev/dl and put its bin folder into PATH."
else
	# From another folder, where no go.mod requires another toolchain, so that nothing is fetched here.
	settings=$(cd / && GOTOOLCHAIN=local go env GOVERSION GOCACHE GOMODCACHE GOFLAGS 2>&1) || settings="? $settings"
	toolchain=$(cd / && bounded 10 go env GOTOOLCHAIN 2>/dev/null)
	version=$(echo "$settings" | sed -n '1s/^go//p')
	cache=$(echo "$settings" | sed -n 2p)
	modules=$(echo "$settings" | sed -n 3p)
	flags=$(echo "$settings" | sed -n 4p)
	if at_least "$version" "$go_needed"; then
		go=yes
	elif at_least "$version" 1.21 && [ "$toolchain" != local ] && [ "$toolchain" != path ]; then
		go=yes # it fetches a later toolchain by itself
	elif at_least "$version" 1.21; then
		problem "Go $go_needed or later: this is Go $version, and GOTOOLCHAIN=$toolchain keeps it from fetching a later one." \
			"Run: go env -w GOTOOLCHAIN=auto (and unset GOTOOLCHAIN), or install Go $go_needed from https://go.dev/dl."
	else
		problem "Go $go_needed or later: this is Go ${version:-of an unknown version}." "Install Go $go_needed or later from https://go.dev/dl and put its bin folder first into PATH."
	fi
fi

# The network, for modules that are not in the cache yet.

# mod_files prints the go.mod files of what the command builds.
mod_files() {
	echo go.mod
	[ "$what" = build ] || echo hack/devcluster/go.mod
	[ "$what" = build ] || [ "$node" = false ] || echo hack/devcluster/node/go.mod
	[ "$what" != test ] || echo hack/tools/golangci-lint/go.mod
}

# missing_modules prints the directly required modules that are not in the module cache, as PATH VERSION.
missing_modules() {
	mod_files | while read -r file; do
		# The cache writes a capital letter as ! and its lower-case letter.
		sed -n '/\/\/ indirect/d; s/^\(require\)\{0,1\}[[:space:]]\{1,\}\([^[:space:]]*\.[^[:space:]]*\) \(v[^[:space:]]*\).*/\2 \3/p' "$file" |
			sed 'h; s/\([A-Z]\)/!\1/g; y/ABCDEFGHIJKLMNOPQRSTUVWXYZ/abcdefghijklmnopqrstuvwxyz/; G; s/\n/ /' |
			while read -r path version name _; do
				[ -d "$modules/$path@$version" ] || echo "$name"
			done
	done
}

# compiles_offline succeeds when the packages that the command builds need none of the missing modules. Tests need
# more modules than programs.
compiles_offline() {
	[ "$what" != test ] && GOPROXY=off go list -deps ./cmd/... >/dev/null 2>&1 &&
		{ [ "$what" = build ] || GOPROXY=off go list -C hack/devcluster -deps . >/dev/null 2>&1; }
}

case $go/${flags:-} in
yes/*-mod=vendor*) ;;
yes/*)
	module=$(missing_modules | head -n 1)
	# A list of versions is never in the cache. Request it outside the module, which must not change.
	if [ -n "$module" ] && ! (cd / && bounded 10 go list -m -versions "$module@latest") >/dev/null 2>&1 && ! compiles_offline; then
		case $(go env GOPROXY) in
		off) problem "Go modules, which are not all in the cache, while GOPROXY is off." "Run: go env -w GOPROXY=https://proxy.golang.org,direct (and unset GOPROXY), or fill the cache ($modules)." ;;
		*) problem "The network: Go modules are missing in the cache, and cannot be fetched." \
			"Check the network, HTTPS_PROXY, and what \`go env GOPROXY\` says; \`go list -m -versions $module@latest\` shows the error." ;;
		esac
	fi
	;;
esac

# Disk space.

skein_cache=${SKEIN_CACHE:-${HOME:-/tmp}/.cache/skein}
gigabytes() { echo $((($1 + 1048575) / 1048576)); }
kilobytes_of() { du -sk "$1" 2>/dev/null | { read -r n _ && echo "$n" || echo 0; }; }

# place FOLDER prints the nearest existing folder.
place() {
	p=$1
	until [ -d "$p" ] || [ "$p" = / ]; do p=$(dirname "$p"); done
	echo "$p"
}

# space prints AVAILABLE NEEDED MOUNT in kilobytes for each file system that is too small. Two thirds of the needed
# space is Go's build cache.
space() {
	need=$(($1 * 1048576))
	for entry in "${cache:-$skein_cache}=65" "${modules:-$skein_cache}=30" "$skein_cache=5"; do
		df -Pk "$(place "${entry%=*}")" 2>/dev/null | awk -v share="${entry##*=}" -v need=$need 'NR == 2 { print $6, $4, int(need * share / 100) }'
	done | awk '{ free[$1] = $2; need[$1] += $3 } END { for (m in need) if (free[m] + 0 < need[m]) print free[m], need[m], m }'
}

[ -n "$(ls -d "$skein_cache"/devcluster/controlplane-*/ "$skein_cache"/devcluster/withnode-*/ 2>/dev/null)" ] && [ "$what" != test ] && first=$later
if [ -n "$(space $first)" ]; then
	# Counting existing files takes a while, so it is done only when space is short.
	have=$(($(kilobytes_of "${cache:-}") + $(kilobytes_of "${modules:-}") + $(kilobytes_of "$skein_cache")))
	left=$((first - have / 1048576))
	[ "$left" -ge "$later" ] || left=$later
	short=$(space $left | while read -r free need mount; do
		printf '%s GB free on %s, where it has %s GB. ' "$(gigabytes "$need")" "$mount" "$((free / 1048576))"
	done)
	[ -z "$short" ] || problem "Disk space: ${short% }" "Free some, or put the caches on another disk: GOCACHE, GOMODCACHE and SKEIN_CACHE name their folders."
fi

# Memory, of the machine or of the container.

memory_kb=$(awk '/^(MemTotal|SwapTotal):/ { n += $2 } END { print n + 0 }' "$root/proc/meminfo" 2>/dev/null)
for file in "$root/sys/fs/cgroup/memory.max" "$root/sys/fs/cgroup/memory/memory.limit_in_bytes"; do
	limit=$(cat "$file" 2>/dev/null)
	case $limit in
	'' | *[!0-9]*) ;;
	*) [ "${#limit}" -gt 17 ] || [ $((limit / 1024)) -ge "${memory_kb:-0}" ] || memory_kb=$((limit / 1024)) ;;
	esac
done
# A machine that is sold with this much memory has slightly less.
if [ "${memory_kb:-0}" -gt 0 ] && [ "$memory_kb" -lt $((memory * 1048576 * 9 / 10)) ]; then
	problem "$memory GB of memory and swap: there are $((memory_kb / 1048576)) GB." "Give the machine or the container more memory, or add swap."
fi

[ "$problems" -eq 0 ]
