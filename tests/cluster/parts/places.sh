# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2154  # cluster.sh sources this file and sets these variables.
# Processes of a cluster: starting them, finding them again, entering their namespaces.

start() { # part command...: in the background; the command line is kept so that it can be started again
  local part=$1; shift
  printf '%q ' "$@" > "cmd/$part"
  "$@" >> "log/$part.log" 2>&1 < /dev/null &
  echo $! > "log/$part.pid"
}

await() { # seconds command...
  local end=$((SECONDS + $1)); shift
  until "$@" > /dev/null 2>&1; do
    [ $SECONDS -lt $end ] || { echo "timed out: $*" >&2; return 1; }
    sleep 0.1
  done
}

k() { HOME=$dir "$bin/kubectl" --kubeconfig "$dir/admin.kubeconfig" "$@"; }
mark() { printf '%s %s\n' "$(date +%s.%N)" "$1" >> "$dir/times"; }

# Prints the start time of a process, which a reused PID does not share.
birth() { sed 's/^.*) //' "/proc/$1/stat" 2> /dev/null | cut -d' ' -f20; }

alive() { # the cluster's first process is there, and is the one we started
  local pid born
  [ -e "$dir/pid" ] || return 1
  read -r pid born < "$dir/pid"
  [ -n "$born" ] && [ "$(birth "$pid")" = "$born" ]
}

main_pid() {
  alive || { echo "no cluster is running in $dir: cluster.sh up $dir" >&2; exit 1; }
  cut -d' ' -f1 "$dir/pid"
}

enter() { # place command...: all namespaces of the place
  local place=$1 main all="--mount --pid --net --ipc --uts"
  main=$(main_pid); shift
  # shellcheck disable=SC2086
  if [ "$place" = control ]; then nsenter --target "$main" $all "$@"
  else nsenter --target "$main" $all /bin/sh -c \
      'exec nsenter --target "$(pgrep -P "$(cat "$0")")" --mount --pid --net --ipc --uts "$@"' \
      "$dir/log/$place.pid" "$@"; fi
}

folder() { if [ "$1" = control ]; then echo "$dir"; else echo "$dir/$1"; fi; }

powered() { # node: on
  enter control /bin/sh -c 'pgrep -P "$(cat "$0")" > /dev/null' "$dir/log/$1.pid"
}

kill_part() { # place part
  if [ "$2" = node ]; then enter control /bin/sh -c 'kill -KILL $(pgrep -P "$(cat "$0")")' "$dir/log/$1.pid"
  else enter "$1" kill -KILL "$(cat "$(folder "$1")/log/$2.pid")"; fi
}

start_again() { # place part
  if [ "$2" = node ]; then enter control "$self" start-node "$dir" "${1#node}"
  else enter "$1" setsid "$self" start-part "$dir" "$1" "$2"; fi
}
