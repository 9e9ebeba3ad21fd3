#!/usr/bin/env bash
# step.sh MESSAGE COMMAND...: runs a command that may take long and prints how long it has run. The command's output
# goes to a file and is shown only when the command fails. On a terminal one line is rewritten each second; elsewhere
# (CI, a file) a plain line is printed every 15 seconds. An interrupt ends the command and all that it has started.
set -euo pipefail
message=$1
shift
log=$(mktemp "${TMPDIR:-/tmp}/skein-step.XXXXXX")
trap 'rm -f "$log"' EXIT
began=$SECONDS
# With job control the command has a process group, and takes the interrupt that it gets: without, it would ignore it.
set -m
"$@" >"$log" 2>&1 </dev/null &
pid=$!
set +m

# running: whether the command or something that it started still runs.
running() { kill -0 -- "-$pid" 2>/dev/null; }

end() {
	trap '' INT TERM HUP
	kill -INT -- "-$pid" 2>/dev/null || true
	local signal i
	for signal in TERM KILL; do
		for ((i = 0; i < 50; i++)); do
			running || break 2
			sleep 0.1
		done
		kill "-$signal" -- "-$pid" 2>/dev/null || true
	done
	wait "$pid" 2>/dev/null || true
	exit 130
}
trap end INT TERM HUP

if [ -t 2 ]; then
	while kill -0 "$pid" 2>/dev/null; do
		printf '\r==> %s … %ds ' "$message" $((SECONDS - began)) >&2
		sleep 0.2
	done
	printf '\r\033[K' >&2
else
	next=15
	while kill -0 "$pid" 2>/dev/null; do
		if [ $((SECONDS - began)) -ge $next ]; then
			echo "==> $message … ${next}s" >&2
			next=$((next + 15))
		fi
		sleep 0.2
	done
fi
status=0
wait "$pid" || status=$?
if [ "$status" -ne 0 ]; then
	echo "==> $message: failed after $((SECONDS - began))s" >&2
	cat "$log" >&2
else
	echo "==> $message ($((SECONDS - began))s)" >&2
fi
exit "$status"
