#!/usr/bin/env bash
# fresh.sh [run]: runs the README's commands as a newcomer does: in a clean clone of the last commit, with an empty
# HOME and empty caches of Go, npm and the dev cluster. It prints a table of steps and times, and the sizes of the
# caches.
#   WHAT   demo, test or both (default)
#   AS     root, user or both; by default both for root, who runs the second as FRESH_USER (nobody)
# fresh.sh interrupt: interrupts `make demo` at random moments, first during a cold build, then during the demo, and
# checks each time that nothing keeps running. After both phases the demo must work. It uses the caller's cache of Go
# modules; all others are empty.
#   TIMES  how many interruptions (20)      SEED  of the random moments
# fresh.sh twins: runs the demo in two clones of one user at the same time, who share all caches, and removes one while
# the other is used.
# All of them remove what they created, even when they are interrupted; only Debian packages stay.
set -euo pipefail
# Each command gets a process group, so that it can be interrupted as from a keyboard.
set -m
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
base=
child=
rows=()
bad=0

say() { printf '\n### %s\n' "$*"; }

# newcomer NAME USER: creates a separate folder for one newcomer: clone, home, caches.
newcomer() {
	local dir=$base/$1 user=$2
	mkdir -p "$dir/home"
	git -c advice.detachedHead=false clone --quiet --no-hardlinks "$root" "$dir/skein"
	if [ "$user" != "$(id -un)" ]; then
		chmod 755 "$base" "$dir"
		chown -R "$user": "$dir"
	fi
}

# start USER DIR COMMAND...: starts a command in the newcomer's clone and environment, as $child. Settings for
# reaching registries stay; all other settings of Go, npm and Skein are removed.
start() {
	local user=$1 dir=$2 home=${FRESH_HOME:-$2/home}
	local modules=${FRESH_MODULES:-$home/go/pkg/mod}
	shift 2
	local how=()
	[ "$user" = "$(id -un)" ] || how=(setpriv --reuid="$(id -u "$user")" --regid="$(id -g "$user")" --clear-groups)
	local name unset=()
	while IFS= read -r name; do
		case $name in
		GOPROXY | GOSUMDB | GONOSUMDB | GONOSUMCHECK | GOPRIVATE | GONOPROXY | GOINSECURE) ;;
		GO* | SKEIN_* | MODEL* | NODE | MAKE* | MFLAGS | WHAT | AS | JOBS | CGO_* | KUBE* | XDG_* | npm_config_cache | PREBUILT | CI) unset+=(-u "$name") ;;
		esac
	done < <(compgen -e)
	(
		cd "$dir/skein"
		exec "${how[@]}" env "${unset[@]}" HOME="$home" USER="$user" LOGNAME="$user" GOPATH="$home/go" GOMODCACHE="$modules" \
			GOCACHE="$home/.cache/go-build" GOENV=off GOPROXY="$proxy" GOSUMDB="$sumdb" GOFLAGS=-buildvcs=false \
			SKEIN_CACHE="$home/.cache/skein" npm_config_cache="$home/.npm" SKEIN_FRESH="$base" "$@"
	) </dev/null &
	child=$!
}

# as USER DIR COMMAND...: runs such a command.
as() {
	local status=0
	start "$@"
	wait "$child" || status=$?
	child=
	return "$status"
}

# ours prints the processes that a newcomer started and that still run.
ours() {
	local p
	{ grep -lszxF "SKEIN_FRESH=$base" /proc/[0-9]*/environ || true; } | while IFS=/ read -r _ _ p _; do
		printf '%s %s\n' "$p" "$(ps -o args= -p "$p" | cut -c 1-150)"
	done
}

finish() {
	local status=$? dir
	trap - EXIT
	trap '' INT TERM HUP
	if [ -n "$child" ]; then
		kill -INT -- "-$child" 2>/dev/null || true
		wait "$child" 2>/dev/null || true
	fi
	if [ -n "$base" ]; then
		for dir in "$base"/*/; do
			[ ! -x "${dir}skein/hack/demo/run.sh" ] || as "$(stat -c %U "$dir")" "${dir%/}" make demo-down >/dev/null 2>&1 || true
		done
		ours | while read -r pid _; do kill "$pid" 2>/dev/null || true; done
		find "$base" -type d ! -perm -u+w -exec chmod u+w {} + 2>/dev/null || true
		rm -rf "$base"
	fi
	exit "$status"
}

begin() {
	for program in git go make setpriv; do
		command -v "$program" >/dev/null || { echo "fresh: no $program in PATH" >&2; exit 1; }
	done
	proxy=$(go env GOPROXY)
	sumdb=$(go env GOSUMDB)
	[ -z "$(git -C "$root" status --porcelain)" ] || echo "fresh: there are changes that are not committed; they are not part of this" >&2
	trap finish EXIT
	trap 'exit 130' INT TERM HUP
	base=$(mktemp -d "${TMPDIR:-/tmp}/skein-fresh.XXXXXX")
}

clock() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

# step USER DIR COMMAND...: runs the command and adds a row to the table.
step() {
	local user=$1 dir=$2 began=$SECONDS result=ok
	shift 2
	say "$user: $*"
	as "$user" "$dir" "$@" || result="FAILED ($?)"
	[ "$result" = ok ] || bad=1
	rows+=("$(printf '%-8s  %-28s  %7s  %s' "$user" "$*" "$(clock $((SECONDS - began)))" "$result")")
}

size() { du -sm "$1" 2>/dev/null | awk '{ printf "%.1f GB", $1 / 1024 }'; }

play() {
	local user=$1 dir=$base/$1 began=$SECONDS
	newcomer "$user" "$user"
	rows+=("$(printf '%-8s  %-28s  %7s  ok' "$user" "git clone" "$(clock $((SECONDS - began)))")")
	if [ "$what" != test ]; then
		step "$user" "$dir" make demo
		step "$user" "$dir" make demo
		step "$user" "$dir" make demo-down
	fi
	[ "$what" = demo ] || step "$user" "$dir" make test
	rows+=("$(printf '%-8s  caches: build %s, modules %s, dev cluster and tools %s, npm %s; clone with bin/ and build/ %s' "$user" \
		"$(size "$dir/home/.cache/go-build")" "$(size "$dir/home/go/pkg/mod")" "$(size "$dir/home/.cache/skein")" "$(size "$dir/home/.npm")" "$(size "$dir/skein")")")
	local left
	left=$(ours)
	if [ -n "$left" ]; then
		bad=1
		rows+=("$user      STILL RUNNING: $left")
	fi
	# Before the next one begins, because both need much space.
	find "$dir" -type d ! -perm -u+w -exec chmod u+w {} +
	rm -rf "$dir"
}

run() {
	what=${WHAT:-both}
	local who=${AS:-both} users=()
	case $what in demo | test | both) ;; *) echo "fresh: WHAT is demo, test or both, not $what" >&2; exit 2 ;; esac
	case $who in root | user | both) ;; *) echo "fresh: AS is root, user or both, not $who" >&2; exit 2 ;; esac
	if [ "$(id -u)" -ne 0 ]; then
		[ "$who" != root ] || { echo "fresh: AS=root needs root" >&2; exit 2; }
		users=("$(id -un)")
	else
		[ "$who" = user ] || users+=(root)
		[ "$who" = root ] || users+=("${FRESH_USER:-nobody}")
	fi
	begin
	for user in "${users[@]}"; do play "$user"; done
	say "$(git -C "$root" log -1 --format='%h %s'), $(nproc) processors, $(go env GOVERSION)"
	printf '%s\n' "${rows[@]}"
	return "$bad"
}

# interrupted DIR SECONDS: starts the demo, and interrupts it after that many seconds, as Ctrl-C does. It fails when the demo was over
# before, and then removes the cluster, which stays after a demo.
interrupted() {
	local dir=$1 after=$2 began=$SECONDS i
	start "$user" "$dir" make demo >"$base/log" 2>&1
	for ((i = 0; i < after * 10; i++)); do
		kill -0 "$child" 2>/dev/null || break
		sleep 0.1
	done
	kill -INT -- "-$child" 2>/dev/null || true
	wait "$child" || true
	child=
	if grep -q 'The demo is over' "$base/log"; then
		echo "over after $((SECONDS - began)) s, before it was to be interrupted after $after s"
		as "$user" "$dir" make demo-down || bad=1
		return 1
	fi
	echo "interrupted after $after s, over after $((SECONDS - began)) s: $(grep -v '^$' "$base/log" | tail -1 | cut -c 1-100)"
}

interrupt() {
	begin
	FRESH_MODULES=$(go env GOMODCACHE)
	export FRESH_MODULES
	RANDOM=${SEED:-$$}
	user=$(id -un)
	local times=${TIMES:-20} dir=$base/one i phase longest
	newcomer one "$user"
	for phase in build demo; do
		longest=90
		[ $phase = build ] || longest=40
		for ((i = 0; i < times / 2; i++)); do
			if ! interrupted "$dir" $((1 + RANDOM % longest)); then
				longest=$((longest * 3 / 4 + 1)) i=$((i - 1))
			fi
			leftovers || bad=1
		done
		say "$phase: the next demo"
		as "$user" "$dir" make demo || { bad=1; echo "fresh: the demo does not work after interruptions" >&2; }
	done
	as "$user" "$dir" make demo-down || bad=1
	leftovers || bad=1
	[ "$bad" -ne 0 ] || say "$times interruptions, and both demos after them worked"
	return "$bad"
}

# leftovers fails when a process of ours still runs 20 s after an interruption.
leftovers() {
	local left i
	for ((i = 0; i < 100; i++)); do
		left=$(ours)
		[ -n "$left" ] || return 0
		sleep 0.2
	done
	printf 'fresh: still running:\n%s\n' "$left" >&2
	return 1
}

twins() {
	begin
	FRESH_MODULES=$(go env GOMODCACHE)
	FRESH_HOME=$base/home
	export FRESH_MODULES FRESH_HOME
	mkdir "$FRESH_HOME"
	user=$(id -un)
	local name pids=()
	for name in one two; do newcomer "$name" "$user"; done
	for name in one two; do
		start "$user" "$base/$name" make demo >"$base/$name.log" 2>&1
		pids+=("$child")
	done
	for pid in "${pids[@]}"; do wait "$pid" || bad=1; done
	child=
	for name in one two; do
		say "the demo of clone $name: $(grep 'The demo is over\|The demo failed' "$base/$name.log" || tail -3 "$base/$name.log")"
	done
	as "$user" "$base/one" make demo-down
	local config
	config=$(sed -n 's/.*export KUBECONFIG=\([^ ]*\).*/\1/p' "$base/two.log" | tail -1) # devcluster up prints it too
	as "$user" "$base/two" hack/devcluster/devcluster.sh kubectl --kubeconfig "$config" get threads -A || bad=1
	as "$user" "$base/two" make demo-down
	leftovers || bad=1
	[ "$bad" -ne 0 ] || say "Neither clone disturbed the other"
	return "$bad"
}

case ${1:-run} in
run | interrupt | twins)
	"${1:-run}"
	exit # bash reads a script as it runs it, and this one may have been changed meanwhile
	;;
*)
	sed -n '2,12p' "$0" | sed 's/^# \{0,1\}//' >&2
	exit 2
	;;
esac
