#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the demo of `make demo` once the images are built: a real Kubernetes serves a model that is sharded over two
# ranks, and the script queries it over HTTP.
#   demo.sh FOLDER          needs FOLDER/worker.tar and FOLDER/controller.tar: of make assembled-image build/release,
#                           of make image build/images
# The cluster "demo" is left running; a second call reuses it and loads images that have changed. With KUBECONFIG and
# PM_REGISTRY set, it only prints the commands for that cluster.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
images=${1:?usage: tests/cluster/demo.sh FOLDER (make demo does it)}
cache=${PM_CACHE:-$HOME/.cache/parallelmodel}
cluster=tests/cluster/cluster.sh
name=demo system=parallelmodel-system models=models model=stories
checkpoint=examples/tiny-stories manifest=examples/stories.yaml
question="Once upon a time"
begin=$(date +%s.%N)

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
inside() { "$cluster" exec $name "$@"; }
show() { printf '$ %s\n' "$*"; inside "$@"; }
since() { awk -v a="$1" -v b="$(date +%s.%N)" 'BEGIN {printf "%.1f", b - a}'; }

existing_cluster() { # registry: the commands, for a cluster that the user has
  cat <<END
On a cluster of your own, with a registry that its nodes can pull from:
  docker build --target worker     -t $1/parallelmodel-worker:0.1.0 .      && docker push $1/parallelmodel-worker:0.1.0
  docker build --target controller -t $1/parallelmodel-controller:0.1.0 .  && \
docker push $1/parallelmodel-controller:0.1.0
  helm upgrade --install parallelmodel helm/parallelmodel -n $system --create-namespace \\
    --set image.repository=$1/parallelmodel-controller --set worker.image.repository=$1/parallelmodel-worker
  kubectl create namespace $models
  # a PersistentVolumeClaim "models" in that namespace that holds a Hugging Face folder "tiny-stories" \
($checkpoint, or any GPT-2)
  kubectl apply -n $models -f $manifest
  kubectl wait -n $models --for=condition=Ready --timeout=10m parallelmodel/$model && \
kubectl get parallelmodels -n $models -o wide
  kubectl run ask -n $models --rm -i --restart=Never --image=curlimages/curl \
-- -s http://$model:8000/generate_text/Once%20upon%20a%20time
END
}

if [ -n "${KUBECONFIG:-}" ] && [ -n "${PM_REGISTRY:-}" ]; then existing_cluster "$PM_REGISTRY"; exit 0; fi

digest() { tar -xOf "$1" index.json | sha256sum | cut -c 1-16; }

start_cluster() { # also tells in $worker_changed whether running pods have an old image
  local what loaded=$cache/demo/images
  worker_changed=
  if "$cluster" status $name > /dev/null 2>&1; then
    for what in worker controller; do
      grep -qx "$what ${digests[$what]}" "$loaded" 2> /dev/null && continue
      echo "loading the new image of the $what"
      "$cluster" load $name "$images/$what.tar"
      if [ $what = worker ]; then worker_changed=yes; fi
    done
  else
    NODES=1 IMAGES="$images/worker.tar $images/controller.tar" "$cluster" up $name
  fi
  for what in worker controller; do echo "$what ${digests[$what]}"; done > "$loaded"
}

install_chart() {
  inside helm upgrade --install parallelmodel helm/parallelmodel -n $system --create-namespace --wait --timeout 120s \
    --set image.repository=localhost/parallelmodel-controller,image.tag=test \
    --set worker.image.repository=localhost/parallelmodel-worker,worker.image.tag=test \
    --set-string podAnnotations.image-digest="${digests[controller]}" > "$cache/demo/helm.log" 2>&1 || {
      cat "$cache/demo/helm.log" >&2; exit 1; }
  inside kubectl wait --for=condition=Established crd/parallelmodels.parallelmodel.dev --timeout=60s \
    > "$cache/demo/wait.log"
  grep -E '^(STATUS|REVISION):' "$cache/demo/helm.log"
}

provide_model() { # a folder of this machine as the claim "models", in a namespace that allows restricted pods only
  mkdir -p "$cache/demo/models"
  cp -ru "$checkpoint" "$cache/demo/models/"
  chmod -R a+rX "$cache/demo/models"
  inside kubectl apply -f - <<END
{apiVersion: v1, kind: Namespace, metadata: {name: $models, labels: {pod-security.kubernetes.io/enforce: restricted}}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: models}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadOnlyMany]
  storageClassName: ""
  hostPath: {path: $cache/demo/models}
  claimRef: {namespace: $models, name: models}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: models, namespace: $models}
spec: {accessModes: [ReadOnlyMany], storageClassName: "", volumeName: models, resources: {requests: {storage: 1Gi}}}
END
}

wait_until_ready() { # a line for each change of what the ParallelModel waits for
  local state last="" start ready; start=$(date +%s.%N)
  ready='{range .status.conditions[?(@.type=="Ready")]}{.status} {.observedGeneration} {.reason}: {.message}{end}'
  for _ in $(seq 600); do
    state=$(inside kubectl get pm $model -n $models -o jsonpath="$ready of {.metadata.generation}")
    if [ "$state" != "$last" ]; then
      case $state in " of "*) ;; *)
        printf '%6s s  %s\n' "$(since "$start")" "$(sed -E 's/^[A-Za-z]+ [0-9]* //; s/ of [0-9]+$//' <<< "$state")" ;;
      esac
      last=$state
    fi
    [[ $state =~ ^True\ ([0-9]+)\ .*\ of\ ([0-9]+)$ ]] && [ "${BASH_REMATCH[1]}" = "${BASH_REMATCH[2]}" ] && return
    sleep 0.3
  done
  echo "$model did not become Ready; what the cluster says:" >&2
  inside kubectl describe pm $model -n $models >&2
  inside kubectl get pods -A -o wide >&2
  inside kubectl logs -n $models -l parallelmodel.dev/name=$model --tail=50 >&2
  inside kubectl logs -n $system deployment/parallelmodel --tail=50 >&2
  exit 1
}

mkdir -p "$cache/demo"
declare -A digests
for what in worker controller; do
  [ -e "$images/$what.tar" ] || {
    echo "no $images/$what.tar: run \`make assembled-image\` first (\`make demo\` does)" >&2; exit 1; }
  digests[$what]=$(digest "$images/$what.tar")
done

say "1. A real Kubernetes in namespaces of its own"
start_cluster
say "2. The operator"
install_chart
say "3. The model: $manifest"
provide_model
# The new image has the same name as the old one, so only a new ParallelModel runs it.
if [ -n "$worker_changed" ]; then inside kubectl delete pm $model -n $models --ignore-not-found; fi
show kubectl apply -n $models -f $manifest
wait_until_ready
show kubectl get pm -n $models -o wide

url=http://$model.$models:8000
say "4. The plan: who holds what"
inside curl -fsS $url/plan | python3 tests/cluster/draw_plan.py

say "5. A question over HTTP, through the Service"
printf '$ curl %s/v1/completions -d %s\n' $url "'{\"prompt\": \"$question\", \"max_tokens\": 160, \"temperature\": 0}'"
answer=$(inside curl -fsS -H 'Content-Type: application/json' \
  -d "{\"prompt\": \"$question\", \"max_tokens\": 160, \"temperature\": 0}" $url/v1/completions)
python3 -c 'import json, sys, textwrap
text = sys.argv[2] + json.loads(sys.argv[1])["choices"][0]["text"]
print(textwrap.fill(text, 110, initial_indent="  ", subsequent_indent="  "))' "$answer" "$question"

say "6. Bytes of each rank, predicted and measured"
show curl -fsS "$url/memory?format=text"

say "7. Some of the metrics"
metrics='plan_info|generation_tokens_total|time_to_first_token_seconds_(sum|count)'
metrics="$metrics|inter_token_latency_seconds_(sum|count)|kv_cache_usage_perc|num_requests_running"
inside curl -fsS $url/metrics | grep -E "^parallelmodel_($metrics)" | sed 's/^/  /'

say "How to go on"
cat <<END
  $cluster exec $name kubectl get pm -n $models -w                    (exec runs any command in the cluster's network)
  $cluster exec $name curl -N $url/v1/completions -H 'Content-Type: application/json' \
-d '{"prompt": "One day", "max_tokens": 80, "stream": true}'
  $cluster exec $name kubectl scale pm $model -n $models --replicas=2
  $cluster exec $name kubectl explain parallelmodel.spec
Clean up:
  $cluster down $name

$(existing_cluster registry.example)
END
say "demo: $(since "$begin") s after the images were there"
