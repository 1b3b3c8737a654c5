# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2154  # cluster.sh sources this file and sets these variables.
# The cgroups of a cluster, $group/node0, $group/node1, ...: the only thing of it outside its namespaces and its folder.
# Version 1 is what this was measured on. Version 2 (most of today's machines) follows the kernel's and the kubelet's
# documentation and is UNTESTED: no machine with it was at hand.

cgroup_version() { [ "$(stat -fc %T /sys/fs/cgroup)" = cgroup2fs ] && echo 2 || echo 1; }

hierarchies() { # the roots in which a group is a folder
  local c
  if [ "$(cgroup_version)" = 2 ]; then echo /sys/fs/cgroup; return; fi
  for c in /sys/fs/cgroup/*/; do [ ! -e "$c/cgroup.procs" ] || echo "${c%/}"; done
}

# The kubelet wants its root group to exist, with every controller usable in it.
create_cgroups() {
  local n c f g
  for n in $(nodes); do
    for c in $(hierarchies); do
      mkdir -p "$c/$group/node$n" || {
        echo "cannot make cgroups in $c: run on a machine, or in a container that owns its cgroups" >&2; return 1; }
    done
  done
  if [ "$(cgroup_version)" = 2 ]; then
    enable_controllers /sys/fs/cgroup
    enable_controllers "/sys/fs/cgroup/$group"
    return
  fi
  for f in cpuset.cpus cpuset.mems; do           # version 1: empty in a new group, level by level
    for g in $group $(seq -f "$group/node%g" 0 $((NODES - 1))); do
      cat /sys/fs/cgroup/cpuset/$f > "/sys/fs/cgroup/cpuset/$g/$f"
    done
  done
}

enable_controllers() { # version 2: a controller works in a group when its parent passes it on
  local controller
  for controller in $(cat "$1/cgroup.controllers"); do
    [[ " $(cat "$1/cgroup.subtree_control") " == *" $controller "* ]] ||
      echo "+$controller" > "$1/cgroup.subtree_control" 2> /dev/null || true
  done
  for controller in cpu cpuset memory pids; do
    [[ " $(cat "$1/cgroup.subtree_control") " == *" $controller "* ]] ||
      { echo "cgroup v2: cannot pass on '$controller' in $1, which the kubelet needs: no right to, or processes in" \
          "that very group (in a container: move them into a child group first)" >&2; return 1; }
  done
}

# Removes them once their processes are gone, which takes the kernel a moment after the kill.
remove_cgroups() {
  local c left
  for _ in $(seq 100); do
    left=""
    for c in $(hierarchies); do
      [ ! -d "$c/$group" ] || find "$c/$group" -depth -type d -exec rmdir {} \; 2> /dev/null || true
      [ ! -d "$c/$group" ] || left="$left $c/$group"
    done
    [ -n "$left" ] || return 0
    sleep 0.1
  done
  echo "cgroups with processes in them stay behind:$left" >&2
  return 1
}

kubelet_cgroup_settings() { # lines of the kubelet's configuration
  echo "cgroupDriver: cgroupfs"
  echo "cgroupRoot: /$group/node$1"
  [ "$(cgroup_version)" = 2 ] || echo "failCgroupV1: false"
}
