#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# All tests, stage by stage, each timed; the first failure ends the run. Stages build what they need. The end-to-end
# tests wait more than they compute, so that they run beside the stages that compute.
# PM_TEST_MINUTES limits a run. A machine that has to compile everything first then leaves tests out, and says which;
# what it has compiled stays for the next run.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
cache=${PM_CACHE:=$HOME/.cache/parallelmodel}
table=$(mktemp)
begin_of_all=$SECONDS
minutes=${PM_TEST_MINUTES:-}
left_out=()
left() { echo $((minutes ? minutes * 60 - (SECONDS - begin_of_all) : 1000000)); }  # seconds
has_time() { # name seconds: false, and noted, where a stage of so many seconds would end too late
  [ "$(left)" -lt "$2" ] || return 0
  echo "=== $1 left out: it takes about $2 s, and $(left) are left"
  left_out+=("$1")
  return 1
}
export PYTHONPATH=$PWD/tests/plugins${PYTHONPATH:+:$PYTHONPATH}
export PYTEST_ADDOPTS="-p time_left -p file_times ${PYTEST_ADDOPTS:-}"
export PYTHONDONTWRITEBYTECODE=  # else each of a stage's processes compiles all modules of its tests again
if [ -n "$minutes" ]; then export PM_TEST_END=$(($(date +%s) + minutes * 60)); fi

timed() { # name command...: adds a line with the seconds by the clock and of the processors
  local name=$1 begin=$SECONDS spent result TIMEFORMAT='%U %S'; shift
  spent=$(mktemp)
  { time "$@" 2>&4; } 4>&2 2> "$spent"
  result=$?
  awk -v name="$name" -v clock=$((SECONDS - begin)) \
    '{ printf "%-12s %5d s, %5d s CPU\n", name, clock, $1 + $2 }' "$spent" >> "$table"
  rm -f "$spent"
  return $result
}

stage() { # name command...
  echo "=== $1"
  if ! timed "$@"; then echo "=== $1 FAILED"; cat "$table"; exit 1; fi
}

# A full disk looks like many other failures: the kubelet deletes images and evicts pods, links end with signal 7.
free=$(df --output=avail -BG "$cache" . | awk 'NR > 1 { print $1 + 0 }' | sort -n | head -1)
if [ "$free" -lt 16 ]; then
  echo "$free GiB are free on the disk of $cache or of this clone, and a run of all tests takes 16." \
    "What 'du -sh $cache/*' shows may be deleted: it is made again when it is needed." >&2
  [ "$free" -ge 4 ] || exit 1
fi

# The Go build of the cluster is the longest and needs nothing of ours: it runs beside the rest at low priority.
set -m
nice make -s cluster > "$cache/cluster-build.log" 2>&1 & cluster=$!
set +m
cluster_built() { wait $cluster || { tail -30 "$cache/cluster-build.log"; return 1; }; }
is_cluster_built() { ! kill -0 $cluster 2> /dev/null; }

# Gateways, a queue and a runtime for some of the end-to-end tests take 50 minutes of one core, once: they are built in
# what the rest leaves idle, and not by a machine that had much else to compile. Tests that come too early for them are
# skipped, and run the next time.
integrations=
build_integrations() {
  [ $((SECONDS - begin_of_all)) -lt 900 ] || return 0
  set -m
  {
    tail --pid=$cluster -f /dev/null
    all=yes
    for name in kueue crane containerd containerd-shim dra kthena epp traefik prometheus-adapter certmanager keda \
        keda-adapter externalsecrets; do
      nice -n 19 tests/cluster/extras/build.sh $name || all=
    done
    [ -z "$all" ] || rm -rf "$cache/go-build"
  } > "$cache/integrations-build.log" 2>&1 & integrations=$!
  set +m
}

# Tests that run beside the stages, each in a process group of its own, so that an interrupt reaches it: the end-to-end
# tests then take their cluster down.
declare -A beside
start() { # name command...
  set -m
  timed "$@" > "$cache/$1.log" 2>&1 & beside[$1]=$!
  set +m
}
passed() { # name: waits for what `start` has started, and shows what it printed
  wait "${beside[$1]}"; local result=$?
  unset "beside[$1]"
  cat "$cache/$1.log"
  return $result
}
stop_all() {
  local pid
  # what it has compiled stays for the next run
  [ -z "$integrations" ] || kill -TERM -- "-$integrations" 2> /dev/null
  is_cluster_built || kill -TERM -- "-$cluster" 2> /dev/null
  for pid in "${beside[@]}"; do { kill -INT -- "-$pid" && wait "$pid"; } 2> /dev/null; done
}
trap stop_all EXIT

# Waits for the cluster as long as some tests could run on it.
e2e_tested() {
  until is_cluster_built; do
    [ "$(left)" -gt 300 ] || { echo "left out: the cluster was built too late"; return 0; }
    sleep 1
  done
  make -s e2e
}

# Without results of the compiler in the cache the worker's image takes half an hour of two cores, beside other tests
# longer. What is tested of the controller's image holds for both.
images_tested() {
  if [ -e "$cache/buildah/worker.built" ] || [ "$(left)" -gt 2700 ]; then
    make -s image-test && make -s release-test
  else
    echo "the worker's image has never been built here, and $(left) s are left: only the controller's is tested"
    tools/image/build.sh build/images controller && "$cache/venv/bin/python" -m pytest -q -s tests/image -k "not worker"
  fi
}

# The longest stage: as large a part of it as there is time for beside the stages behind it, and some in any case. It
# is another part each day.
parity_tested() {
  local share=$((($(left) - 900) * 100 / 3400))
  share=$((share > 100 ? 100 : share < 5 ? 5 : share))
  [ $share = 100 ] || left_out+=("$((100 - share))% of the tests of parity")
  PM_TEST_SHARE=$share PM_TEST_DRAW=$(date +%F) make -s parity
}

stage deps make -s test-deps
stage lint make -s lint
stage build make -s build-tests
build_integrations
stage unit make -s unit  # alone, because its tests of hangs and leases count seconds
start e2e e2e_tested
if has_time cuda 2400; then stage cuda make -s cuda; fi
if has_time fuzz 2400; then stage fuzz tests/fuzz/run.sh; fi
stage parity parity_tested
stage hub make -s hub
if has_time browser 120; then stage browser make -s browser; fi
if has_time clients 240; then stage clients make -s clients; fi
if is_cluster_built || has_time cluster 240; then
  stage cluster cluster_built
  stage chart make -s chart
  stage e2e-rest passed e2e
  # The releases install on the cluster that the end-to-end tests have had. They compute on one core, as reliability
  # does.
  if has_time images 900; then start image images_tested; fi
  stage reliability make -s reliability
  if [ -n "${beside[image]:-}" ]; then stage image-rest passed image; fi
fi
stage stress make -s stress
echo "=== stages: $((SECONDS - begin_of_all)) s in all; NAME-rest is what NAME took after the stages beside it"
cat "$table"
if [ ${#left_out[@]} -gt 0 ]; then
  printf '=== left out for want of time: %s\n' "${left_out[@]}"
  echo "=== what this run has compiled, the next one finds"
fi
