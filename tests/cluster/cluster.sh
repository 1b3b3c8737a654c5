#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A real Kubernetes, control plane and nodes, inside namespaces of its own; nothing on the machine is changed.
#   cluster.sh up NAME                  start; return when every node is Ready. Environment, kept for the later verbs:
#                                       NODES=1  FAKE_GPUS=0 (one count, or 4,0,... per node)  IMAGES="a.tar b.tar"
#                                       AUDIT=0|1
#                                       FAST_FAILURE=0|1 (a dead node counts as dead after 8 s, its pods go after 13 s)
#                                       APISERVER_FLAGS  KCM_FLAGS  SCHEDULER_FLAGS  LEASE=40  PROXY_MODE=nftables
#                                       OWNER=PID (once that process is gone, the next `up` takes the cluster down
#                                       first)
#   cluster.sh load NAME ARCHIVE...     import images into every running node
#   cluster.sh exec NAME CMD...         run CMD in the control plane's network with the cluster's DNS, KUBECONFIG and
#                                       PATH set; files and processes of the machine
#   cluster.sh shell NAME PLACE CMD...  run CMD in all namespaces of PLACE: control, node0, node1, ...
#   cluster.sh kill NAME PLACE PART     SIGKILL a component: control {etcd,apiserver,kcm,scheduler,dns,proxy},
#                                       nodeN {containerd,kubelet,proxy,fake-gpu}; nodeN node = power failure
#   cluster.sh start NAME PLACE PART    start it again
#   cluster.sh status NAME              print "up" or "down" (exit status 1), and the folder
#   cluster.sh down NAME                kill everything, remove the cgroups; configuration and logs stay in the folder
# NAME is a word (folder $PM_CACHE/run/NAME) or a path with a slash.
set -eu
self=$(readlink -f "$0")
here=$(dirname "$self")
# Each part is also checked on its own.
# shellcheck disable=SC1090
for part in cache places pki cgroups config control node; do . "$here/parts/$part.sh"; done
# This is the control plane's address. Node N has 10.99.0.(10+N), its pods have 10.88.N.0/24, services 10.96.0.0/16.
# shellcheck disable=SC2034  # The parts read it.
control=10.99.0.1
sock=/run/containerd/containerd.sock
settings="NODES FAKE_GPUS IMAGES AUDIT LEASE RUNTIME APISERVER_FLAGS KCM_FLAGS SCHEDULER_FLAGS PROXY_MODE cache bin"

usage() { sed -n '2,19s/^# \{0,1\}//p' "$self" >&2; exit 2; }

choose_settings() { # from the environment, written down for every later verb
  local variable
  if [ "${FAST_FAILURE:-0}" != 0 ]; then
    APISERVER_FLAGS="--default-unreachable-toleration-seconds=5 ${APISERVER_FLAGS:-}"
    APISERVER_FLAGS="--default-not-ready-toleration-seconds=5 $APISERVER_FLAGS"
    KCM_FLAGS="--node-monitor-grace-period=8s --node-monitor-period=1s ${KCM_FLAGS:-}"
    LEASE=${LEASE:-4}
  fi
  NODES=${NODES:-1} FAKE_GPUS=${FAKE_GPUS:-0} AUDIT=${AUDIT:-0} LEASE=${LEASE:-40} PROXY_MODE=${PROXY_MODE:-nftables}
  APISERVER_FLAGS=${APISERVER_FLAGS:-} KCM_FLAGS=${KCM_FLAGS:-} SCHEDULER_FLAGS=${SCHEDULER_FLAGS:-}
  RUNTIME=${RUNTIME:-}
  local archive found=""
  for archive in ${IMAGES:-}; do
    found="$found $(readlink -e "$archive")" || {
      echo "IMAGES names a file that is not there: $archive" >&2; return 1; }
  done
  IMAGES=$found
  cache=${CLUSTER_CACHE:-$(cluster_cache)}
  bin=$cache/bin
  for variable in $settings; do printf '%s=%q\n' "$variable" "${!variable}"; done
}

up() {
  local outer begin; begin=$(date +%s.%N)
  if alive; then abandoned || { echo "already up: $dir" >&2; return 1; }; down; fi
  local chosen; chosen=$(choose_settings)
  eval "$chosen"
  [ -e "$cache/complete" ] || "$here/build.sh" > /dev/null
  [ ! -d "$dir" ] || [ -e "$dir/settings" ] || [ -z "$(ls -A "$dir")" ] || {
    echo "$dir holds something else than a cluster" >&2; return 1; }
  rm -rf --one-file-system "$dir"
  mkdir -p "$dir"
  cd "$dir"
  [ -z "${OWNER:-}" ] || echo "$OWNER $(birth "$OWNER")" > owner
  echo "$chosen" > settings
  certificates
  cluster_configs
  for n in $(nodes); do node_configs "$n"; done
  mark certificates
  trap 'down' EXIT; trap 'exit 1' INT TERM       # an interrupted start leaves nothing
  create_cgroups
  setsid unshare --mount --propagation private --pid --fork --kill-child --mount-proc --net --ipc --uts \
    "$self" run-control "$dir" > control.log 2>&1 < /dev/null &
  outer=$!
  first_process $outer
  for _ in $(seq 1500); do
    if [ -e ready ] || ! alive; then break; fi
    sleep 0.2
  done
  [ -e ready ] || {
    cat control.log >&2; echo "the cluster did not start; logs in $dir/log and $dir/node*/log" >&2; return 1; }
  trap - EXIT INT TERM
  report "$begin"
}

abandoned() { # the process that started the cluster for itself was killed before it could take it down
  local pid born
  [ -e "$dir/owner" ] || return 1
  read -r pid born < "$dir/owner"
  [ "$(birth "$pid")" != "$born" ] && echo "taking down $dir: process $pid, which started it, is gone" >&2
}

first_process() { # PID of unshare: writes down its child, which is PID 1 of the namespaces
  local pid
  until pid=$(pgrep -P "$1"); do kill -0 "$1" 2> /dev/null || return 0; sleep 0.05; done
  echo "$pid $(birth "$pid")" > "$dir/pid"
}

report() { # begin: the stages and their seconds in one line
  awk -v t="$1" -v b="$1" '
    {s = $1; $1 = ""; printf "%s%s %.1f", (NR > 1 ? "," : ""), $0, s - t; t = s}
    END {printf ": %.1f s\n", t - b}' "$dir/times" |
    sed "s/^/cluster $(basename "$dir") up,/" >&2
}

load() { # archive...: into all running nodes at once
  local archive node job jobs=()
  main_pid > /dev/null
  for node in $(nodes | sed s/^/node/); do
    powered "$node" || { echo "$node is off: start it before loading images" >&2; return 1; }
  done
  for archive; do
    archive=$(readlink -e "$archive") || { echo "no such image archive: $archive" >&2; return 1; }
    for node in $(nodes | sed s/^/node/); do load_node "$node" "$archive" & jobs+=($!); done
    for job in "${jobs[@]}"; do wait "$job"; done
    jobs=()
  done
}

load_node() { # node archive: only the layers that the node does not have; all of them should one vanish meanwhile
  local images="ctr -a $sock -n k8s.io"
  # shellcheck disable=SC2086
  enter "$1" $images content ls --quiet | python3 "$here/oci.py" --without "$2" |
    enter "$1" $images images import - > /dev/null 2>&1 ||
    enter "$1" $images images import "$2" > /dev/null
}

exec_in() { # command...: network of the control plane, DNS of the cluster, files of the machine
  export KUBECONFIG=$dir/admin.kubeconfig KUBECACHEDIR=$dir/home/kube PATH=$bin:$PATH
  export HELM_CACHE_HOME=$dir/home/helm/cache HELM_CONFIG_HOME=$dir/home/helm/config HELM_DATA_HOME=$dir/home/helm/data
  local pid; pid=$(main_pid)
  exec nsenter --target "$pid" --net unshare --mount --propagation private /bin/sh -c \
    'mount --bind "$0" /etc/resolv.conf && exec "$@"' "$dir/exec.resolv.conf" "$@"
}

down() {
  local pid
  trap - EXIT
  if alive; then
    pid=$(main_pid)
    kill -KILL "$pid"
    for _ in $(seq 100); do [ -e "/proc/$pid" ] || break; sleep 0.1; done
  fi
  remove_cgroups
  rm -rf --one-file-system "${dir:?}"/{pid,owner,ready,api-up,etcd,home} "$dir"/node*/{containerd,kubelet,opt,imported}
}

[ $# -ge 2 ] || usage
verb=$1 name=$2
shift 2
[ "$(id -u)" = 0 ] || { echo "cluster.sh makes namespaces and cgroups: run it as root" >&2; exit 1; }
case $name in */*) dir=$(readlink -m "$name") ;; *) dir=$(readlink -m "$PM_CACHE/run/$name") ;; esac
# This names the cluster's cgroups; no two folders share them.
# shellcheck disable=SC2034  # The parts read it.
group=pm-$(basename "$dir")-$(printf %s "$dir" | cksum | cut -d' ' -f1)
if [ "$verb" != up ] && [ -e "$dir/settings" ]; then . "$dir/settings"; fi

case $verb in
up) up ;;
load) load "$@" ;;
exec) exec_in "$@" ;;
shell) export KUBECONFIG=$dir/admin.kubeconfig PATH=${bin:-}:$PATH; enter "$@" ;;
kill) [ $# = 2 ] || usage; kill_part "$@" ;;
start) [ $# = 2 ] || usage; start_again "$@" ;;
status) if alive && [ -e "$dir/ready" ]; then echo "up $dir"; else echo "down $dir"; exit 1; fi ;;
down) down ;;
run-control) run_control ;;                  # from here on: called by this script inside the namespaces
run-node) run_node "$@" ;;
start-node) cd "$dir"; start_node "$1" ;;
start-part) cd "$(folder "$1")"; eval "set -- $2 $(cat "cmd/$2")"; start "$@" ;;
*) usage ;;
esac
