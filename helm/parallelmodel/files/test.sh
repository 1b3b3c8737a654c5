# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Creates a ParallelModel of two CPU ranks from $SOURCE in namespace $NS, sends one request, deletes it, and waits until
# its pods are gone. It needs only curl.
# Without a source it checks that the API is served and that the controller reconciles a new object.
account=${ACCOUNT:-/var/run/secrets/kubernetes.io/serviceaccount}
api="https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT"
models="$api/apis/parallelmodel.dev/v1alpha1/namespaces/$NS/parallelmodels"
token=
IFS= read -r token < $account/token || [ -n "$token" ]
ask() {
  curl --silent --show-error --max-time 10 --cacert $account/ca.crt --header "Authorization: Bearer $token" \
    --header "Content-Type: application/json" "$@"
}
remove() { ask --request DELETE "$models/$NAME" > /dev/null; }
fail() { echo "$*"; ask "$models/$NAME"; remove; exit 1; }
has() { case $1 in *"$2"*) return 0 ;; esac; return 1; }

source=$SOURCE
[ -n "$source" ] || source="pvc://$NAME-has-no-claim"
remove
made=$(ask --fail-with-body --request POST "$models" --data '{
  "apiVersion": "parallelmodel.dev/v1alpha1", "kind": "ParallelModel", "metadata": {"name": "'"$NAME"'"}, "spec": {
  "model": {"source": "'"$source"'"}, "devices": {"count": 2, "type": "CPU"},
  "resources": {"cpu": "500m", "memory": "1Gi"}, "update": {"drainSeconds": 1}}}') ||
  { echo "the API server rejects a ParallelModel: $made"; exit 1; }

second=0
while [ $second -lt "$SECONDS_TO_SERVE" ]; do
  if [ -z "$SOURCE" ]; then
    has "$(ask "$models/$NAME")" observedGeneration && {
      remove; echo "the controller reconciles; set tests.source=pvc://CLAIM/PATH to test serving too"; exit 0; }
  else
    answer=$(curl --silent --max-time 5 "http://$NAME.$NS:8000/v1/completions" \
      --header "Content-Type: application/json" --data '{"prompt": "Once", "max_tokens": 4}')
    has "$answer" '"choices"' && break
  fi
  sleep 1
  second=$((second + 1))
done
[ $second -lt "$SECONDS_TO_SERVE" ] || fail "the model did not serve within $SECONDS_TO_SERVE s:"
echo "served: $answer"

remove
second=0
while has "$(ask "$api/api/v1/namespaces/$NS/pods?labelSelector=parallelmodel.dev/name=$NAME")" '"uid"'; do
  [ $second -lt 60 ] || fail "pods still exist 60 s after the deletion:"
  sleep 1
  second=$((second + 1))
done
echo "deleted; no pods are left"
