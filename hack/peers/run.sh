#!/usr/bin/env bash
# peers/run.sh: times what operators do with their objects, on the cluster of your KUBECONFIG, so that others are measured as Skein is.
#
#   make bench-peers                        prints this
#   make bench-peers PEER=skein             makes 20 objects, one after another, and prints how long each took
#   make bench-peers PEER=skein N=100 AT=once   makes 100 at once, and prints how many were done in a second
#
# A time begins when a watch shows the object, and ends when the same watch shows it as done, so it has no share of kubectl. Compare figures
# of one cluster only, which does nothing else, and run each peer several times, in turns. `make bench` prints more of Skein beside the floor of
# each figure, and the times of CronJobs.
#
# PEER is one of these. Install it first:
#
#   skein           a Thread with a message, until its run has succeeded: docs/install.md. The model is a script and answers at once.
#   acp             a Task of Agent Control Plane, until its final answer: github.com/humanlayer/agentcontrolplane, acp/config/release/latest.yaml.
#                   The model is a server in the cluster that answers at once. It is a pod with an image of Python, which IMAGE names.
#   agent-sandbox   a SandboxClaim on a warm pool of N, until it is Ready: github.com/kubernetes-sigs/agent-sandbox, v0.5 or later, with extensions.
#                   IMAGE names the image of its pods. `make bench` has Skein's side: "warm claim → connected".
#   job             a Job whose container ends at once, until it has succeeded. IMAGE names its image.
#
# NAMESPACE (skein-peers) is made if it is missing, and stays. Objects of the timed kind in it are deleted before and after: the run
# refuses a namespace that has others than its own. The manifests are beside this file.
set -euo pipefail
export LC_ALL=C
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
peer=${PEER:-} n=${N:-20} at=${AT:-} patience=${PATIENCE:-300}
ns=${NAMESPACE:-skein-peers}
read -ra kubectl <<<"${KUBECTL:-kubectl}" # it may be a program with arguments

if [ -z "$peer" ]; then
	sed -n '2,/^set -e/{/^set -e/d;s/^# \{0,1\}//p}' "$0"
	exit 0
fi
image=${IMAGE:-busybox:1.37}
case $peer in
skein) kind=threads.skein.dev state='{.status.lastRun.outcome}' end=Succeeded ready='condition=Ready agent/bench' ;;
acp)
	kind=tasks.acp.humanlayer.dev state='{.status.phase}' end=FinalAnswer ready='jsonpath={.status.ready}=true agents.acp.humanlayer.dev/bench'
	image=${IMAGE:-python:3-alpine}
	;;
agent-sandbox) kind=sandboxclaims.extensions.agents.x-k8s.io state='{.status.conditions[?(@.type=="Ready")].status}' end=True ready="jsonpath={.status.readyReplicas}=$((n + 1)) sandboxwarmpool/bench" ;;
job) kind=jobs.batch state='{.status.succeeded}' end=1 ready= ;;
*)
	echo "peers: PEER=$peer: give skein, acp, agent-sandbox or job" >&2
	exit 2
	;;
esac
if ! [[ $n =~ ^[1-9][0-9]*$ ]] || [ -n "$at" ] && [ "$at" != once ]; then
	echo "peers: N is a number above 0, and AT is once or empty" >&2
	exit 2
fi

# manifests prints a part of the peer's file: what is before the line "# Then.", what is behind it, or what is behind "# Timed."
manifests() {
	local part=$1 name=${2:-}
	awk -v part="$part" 'BEGIN { now = "First" } /^# (Then|Timed)\.$/ { now = substr($2, 1, length($2) - 1); next } now == part' "$here/$peer.yaml" |
		sed "s|@IMAGE@|$image|g; s|@REPLICAS@|$((n + 1))|g; s|@NAMESPACE@|$ns|g; s|@NAME@|$name|g"
}

kc() { "${kubectl[@]}" --namespace "$ns" "$@"; }

watcher=
clean() {
	[ -z "$watcher" ] || kill "$watcher" 2>/dev/null || true
	kc delete "$kind" --all --wait=false >/dev/null 2>&1 || true
}

"${kubectl[@]}" get namespace "$ns" >/dev/null 2>&1 || "${kubectl[@]}" create namespace "$ns" >/dev/null
# All objects of the kind are deleted before and after, so none may be somebody else's.
others=$(kc get "$kind" -o name | { grep -vE '/(t-[0-9]+|warm-up)$' || true; })
if [ -n "$others" ]; then
	echo "peers: namespace $ns has objects that this run did not make, and it would delete them: give another NAMESPACE" >&2
	exit 2
fi
trap clean EXIT
kc delete "$kind" --all --timeout="${patience}s" >/dev/null
if [ -n "$(manifests First)" ]; then
	manifests First | kc apply -f - >/dev/null
fi
if [ -n "$(manifests Then)" ]; then
	kc wait --timeout="${patience}s" --for=condition=Available deployment --all >/dev/null
	manifests Then | kc apply -f - >/dev/null
fi
# shellcheck disable=SC2086 # two words: what is waited for, and of which object
[ -z "$ready" ] || kc wait --timeout="${patience}s" --for=$ready >/dev/null

coproc events { exec "${kubectl[@]}" --namespace "$ns" get "$kind" --watch -o jsonpath="{.metadata.name} $state{\"\\n\"}"; }
watcher=$events_PID
exec {shown}<&"${events[0]}" # bash forgets the coprocess when it ends

declare -A began=() ended=()
warm=

# follow reads what the watch shows until so many objects are done.
follow() {
	local name state at
	while [ "${#ended[@]}" -lt "$1" ]; do
		if ! read -r -t "$patience" name state <&"$shown"; then
			echo "peers: the watch ended, or showed nothing new for $patience seconds, after ${#ended[@]} of $1 objects: kubectl -n $ns get $kind" >&2
			exit 1
		fi
		at=${EPOCHREALTIME/./}
		[ "$name" != warm-up ] || [ -z "$warm" ] || continue
		began[$name]=${began[$name]:-$at}
		[ "$state" != "$end" ] || ended[$name]=${ended[$name]:-$at}
	done
}

# The first one may begin before the watch, and finds caches cold: it does not count.
manifests Timed warm-up | kc create -f - >/dev/null
follow 1
began=() ended=() warm=true
if [ "$at" = once ]; then
	for i in $(seq "$n"); do
		manifests Timed "t-$i"
		echo ---
	done | kc create -f - >/dev/null &
	follow "$n"
	wait $!
else
	for i in $(seq "$n"); do
		manifests Timed "t-$i" | kc create -f - >/dev/null
		follow "$i"
	done
fi

took=$(for name in "${!ended[@]}"; do echo $((ended[$name] - began[$name])); done | sort -n)
# quantile prints one of the sorted times.
quantile() { awk -v q="$1" '{ t[NR] = $1 } END { i = int(NR * q) + 1; if (i > NR) i = NR; printf "%.1f ms", t[i] / 1000 }' <<<"$took"; }
line="$peer: n=$n p50 $(quantile 0.5) p95 $(quantile 0.95) worst $(quantile 1)"
if [ "$at" = once ]; then
	first=$(printf '%s\n' "${began[@]}" | sort -n | sed -n 1p)
	last=$(printf '%s\n' "${ended[@]}" | sort -n | tail -n 1)
	line+=" at once: $(awk -v n="$n" -v d=$((last - first)) 'BEGIN { printf "%.1f a second", n * 1000000 / d }')"
fi
echo "$line"
