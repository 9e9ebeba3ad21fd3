#!/usr/bin/env bash
# can-node.sh: prints in one line why this machine cannot run a real node, or nothing when it can.
set -euo pipefail
# Tests replace /proc, /lib and /dev with another tree.
root=${PREREQUISITES_ROOT:-}

# no_nftables succeeds when the kernel has no nftables. Without any sign of that, it counts as having them.
no_nftables() {
	if command -v nft >/dev/null 2>&1; then
		! nft list tables >/dev/null 2>&1
		return
	fi
	local modules
	modules=$root/lib/modules/$(uname -r)
	[ -e "$modules/modules.builtin" ] && ! grep -qs 'nf_tables' "$modules/modules.builtin" "$modules/modules.dep" "$root/proc/modules"
}

if [ "$(uname -s)" != Linux ]; then
	echo "a real node needs Linux, and this is $(uname -s)"
elif [ "$(id -u)" -ne 0 ]; then
	echo "a real node needs root, and this is user $(id -un): run it with sudo"
elif [ ! -e "$root/dev/kmsg" ]; then
	echo "a real node needs /dev/kmsg: in a container, start it privileged or with --device=/dev/kmsg"
elif no_nftables; then
	echo "a real node needs nftables: load the module nf_tables, or use a kernel that has it, and allow NET_ADMIN in a container"
fi
