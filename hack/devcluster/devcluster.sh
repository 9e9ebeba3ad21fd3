#!/bin/sh
# devcluster.sh COMMAND ...: builds what is missing (with progress), then runs hack/devcluster. It compiles the small
# bootstrap program once per version of its sources; that program does the rest. For a cluster that was never up, this
# script itself answers down, status and env, without compiling anything.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd -P)

# never_up COMMAND ARGUMENT...: answers for a cluster without a run directory and exits. It returns when there is a
# run directory, or when the programs are needed anyway.
never_up() {
	command=$1
	shift
	name=skein
	dir=${SKEIN_DEVCLUSTER_DIR:-}
	while [ $# -gt 0 ]; do
		case $1 in
		--name=* | -name=*) name=${1#*=} ;;
		--dir=* | -dir=*) dir=${1#*=} ;;
		--name | -name | --dir | -dir)
			if [ $# -lt 2 ]; then
				echo "devcluster $command: $1 needs a value" >&2
				exit 2
			fi
			case $1 in
			*name) name=$2 ;;
			*) dir=$2 ;;
			esac
			shift
			;;
		--assets | -assets | --assets=* | -assets=*)
			# Printing the folder of the programs needs no cluster, but it needs the programs.
			[ "$command" = env ] && return
			refuse "$command" "$1"
			;;
		-h | -help | --help)
			flags "$command"
			exit 0
			;;
		*) refuse "$command" "$1" ;;
		esac
		shift
	done
	case $name in
	'' | -* | *- | *[!a-z0-9-]* | ???????????????????????????????*)
		echo "devcluster: the cluster name \"$name\" is not valid: use up to 30 lower-case letters, digits and inner dashes" >&2
		exit 1
		;;
	esac
	if [ -z "$dir" ]; then
		user=$(id -u)
		[ "$user" = 0 ] && user='' || user=$user-
		dir=${TMPDIR:-/tmp}
		dir=${dir%/}/skein-devcluster-$user$name
	fi
	case $dir in
	/*) ;;
	*) dir=$PWD/$dir ;;
	esac
	[ -e "$dir" ] || [ -L "$dir" ] && return
	case $command in
	down)
		rm -rf -- "$dir-failed-logs"
		echo "devcluster: nothing is up in $dir"
		exit 0
		;;
	status)
		echo "nothing is up in $dir"
		exit 1
		;;
	env)
		echo "devcluster: nothing is up in $dir: run up first (env --assets needs no cluster)" >&2
		exit 1
		;;
	esac
}

flags() {
	echo "Usage of $1:"
	echo "  -dir directory"
	echo "    	run directory; by default one named after the cluster in the system's folder for temporary files"
	echo "  -name name"
	echo "    	name of the cluster; several can run side by side (default \"skein\")"
	[ "$1" != env ] || printf '  -assets\n    \tprint only the folder for KUBEBUILDER_ASSETS\n'
}

refuse() {
	case $2 in
	-*) echo "devcluster $1 does not know \"$2\"" >&2 ;;
	*) echo "devcluster $1 takes flags only, and \"$2\" is none" >&2 ;;
	esac
	flags "$1" >&2
	exit 2
}

case ${1:-} in
down | status | env) never_up "$@" ;;
esac

if ! command -v go >/dev/null 2>&1; then
	echo "devcluster: no 'go' in PATH: install Go 1.26 or newer (https://go.dev/dl)" >&2
	exit 1
fi
cache=${SKEIN_CACHE:-${HOME:-/tmp}/.cache/skein}/devcluster
key=$(cat "$here"/bootstrap/go.mod "$here"/bootstrap/*.go | cksum | tr ' ' '-')-$(uname -s)-$(uname -m)
boot=$cache/bootstrap-$key
if [ ! -x "$boot" ]; then
	mkdir -p "$cache"
	# Built under another name and renamed, so that an interrupted or parallel build leaves nothing incomplete.
	tmp=$cache/.bootstrap-$$
	trap 'rm -f "$tmp"' EXIT
	trap 'rm -f "$tmp"; exit 130' INT TERM HUP
	echo "devcluster: compiling the program that builds the rest (about 20 s where nothing was compiled before)" >&2
	CGO_ENABLED=0 GOFLAGS="-buildvcs=false -trimpath -gcflags=all=-dwarf=false" GOWORK=off go build -C "$here/bootstrap" -o "$tmp" .
	mv -f "$tmp" "$boot"
	trap - EXIT INT TERM HUP
	# Old versions only, because another checkout may be about to start its own version.
	find "$cache" -maxdepth 1 -name 'bootstrap-*' ! -name "bootstrap-$key" -mtime +1 -exec rm -f {} +
fi
SKEIN_DEVCLUSTER_SRC=$here exec "$boot" "$@"
