# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2154,SC2164  # cluster.sh sources this file: it sets the variables, and set -e ends a failed cd.
# A node: a network namespace joined to the control plane by a veth pair, and PID and mount namespaces of its own in it.

nodes() { seq 0 $((NODES - 1)); }
node_address() { echo 10.99.0.$((10 + $1)); }

fake_gpus() { # number: FAKE_GPUS is one count for all nodes or a list, node0 first: 4 or 4,0,2
  local counts; IFS=, read -ra counts <<< "$FAKE_GPUS"
  if [ "$1" -lt ${#counts[@]} ]; then echo "${counts[$1]}"
  elif [ ${#counts[@]} = 1 ]; then echo "${counts[0]}"
  else echo 0; fi
}

start_node() { # number: power on
  local n=$1 a; a=$(node_address "$1")
  ip netns delete "node$n" 2> /dev/null || true
  ip link delete "node$n" 2> /dev/null || true
  ip netns add "node$n"
  ip link add "node$n" type veth peer name eth0 netns "node$n"
  ip link set "node$n" up
  ip route add "$a/32" dev "node$n" src $control
  ip route add "10.88.$n.0/24" via "$a" dev "node$n" onlink src $control
  ip -n "node$n" link set lo up
  ip -n "node$n" link set eth0 up
  ip -n "node$n" address add "$a/32" dev eth0
  ip -n "node$n" route add $control/32 dev eth0 src "$a"
  ip -n "node$n" route add default via $control dev eth0 onlink src "$a"
  # not `ip netns exec`: it remounts /sys and hides the cgroups
  start "node$n" nsenter --net="/run/netns/node$n" \
    unshare --mount --propagation private --pid --fork --kill-child --mount-proc --ipc --uts \
    "$self" run-node "$dir" "$n"
}

run_node() { # number
  local n=$1 d=$dir/node$1 gpus
  gpus=$(fake_gpus "$n")
  cd "$d"
  trap 'exit 0' TERM INT
  hostname "node$n"
  echo 1 > /proc/sys/net/ipv4/ip_forward
  private_folders
  private_sysctls
  PATH=${RUNTIME:+$RUNTIME:}$PATH start containerd containerd --config containerd.toml --log-level warn
  await 60 ctr -a $sock version
  [ -e imported ] || import_images
  await 120 test -e "$dir/api-up"
  start kubelet "$bin/kubelet" --config kubelet.yaml --kubeconfig "$dir/node$n.kubeconfig" \
    --hostname-override "node$n" --node-ip "$(node_address "$n")" --root-dir /var/lib/kubelet --cert-dir "$d"
  start proxy "$bin/kube-proxy" --config proxy.yaml
  if [ "$gpus" != 0 ]; then
    await 120 test -S /var/lib/kubelet/device-plugins/kubelet.sock
    start fake-gpu "$bin/fake-gpu" --count "$gpus"
  fi
  while :; do wait -n || sleep 1; done
}

private_folders() { # what the components write at fixed places goes to the node's folder or to memory
  local point
  mkdir -p /var/lib/kubelet /var/lib/cni             # two empty folders on the machine: mount points
  for point in /run /var/lib/cni; do mount -t tmpfs -o mode=755 tmpfs $point; done
  mount --bind kubelet /var/lib/kubelet              # on disk: a tmpfs would make plain emptyDirs RAM
  mount --bind var-log /var/log
  rm -f kubelet/device-plugins/*.sock                # left by a power failure: would swallow the plugin's registration
}

# The kubelet wants sysctls of the machine changed. It gets files that already have the wanted values instead.
private_sysctls() {
  local pair file
  for pair in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
      kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    file=sysctl/${pair//\//.}
    file=${file%=*}
    echo "${pair#*=}" > "$file"
    mount --bind "$file" "/proc/sys/${pair%=*}"
  done
}

import_images() { # the pause image and those given to `up`
  local archive
  for archive in "$cache/images/pause.tar" $IMAGES; do import "$archive"; done
  touch imported
}

import() { ctr -a $sock -n k8s.io images import "$1" > /dev/null; }      # unpacked now, not in the first pod's start
