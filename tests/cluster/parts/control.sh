# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2154,SC2164  # cluster.sh sources this file: it sets the variables, and set -e ends a failed cd.
# The control plane: PID 1 of a cluster's namespaces, parent of the nodes.

run_control() {
  cd "$dir"
  trap 'exit 0' TERM INT
  hostname control
  ip link set lo up
  ip address add $control/32 dev lo
  mount -t tmpfs -o mode=755 tmpfs /run
  mkdir -p /run/netns
  echo 1 > /proc/sys/net/ipv4/ip_forward
  mkdir -p log cmd etcd
  start_storage
  for n in $(nodes); do start_node "$n"; done
  await 120 k get --raw /readyz --request-timeout 2s
  mark "api server"
  start_controllers
  touch api-up
  start dns "$bin/coredns" -conf Corefile
  # kube-proxy provides ClusterIPs for the tests' own processes and for the API server's webhooks.
  start proxy "$bin/kube-proxy" --config proxy.yaml
  ip route add 10.96.0.0/16 dev lo src $control
  for n in $(nodes); do await 180 k wait --for=condition=Ready "node/node$n" --timeout=1s; done
  mark "nodes ready"
  await 120 k get --raw /api/v1/namespaces/default/serviceaccounts/default
  for n in $(nodes); do await 120 devices_there "$n"; done
  mark "accounts and devices"
  await 60 k --server https://10.96.0.1 get --raw /readyz --request-timeout 2s
  await 60 dns_ready
  mark "services and names"
  touch ready
  while :; do wait -n || sleep 1; done
}

start_storage() { # etcd and the api server, which hands requests on to API servers that are registered with it
  local audit=()
  [ "$AUDIT" = 0 ] || audit=(--audit-policy-file "$here/parts/audit.yaml" --audit-log-path log/audit.log)
  start etcd "$bin/etcd" --data-dir etcd --unsafe-no-fsync --log-level warn \
    --listen-client-urls https://127.0.0.1:2379 --advertise-client-urls https://127.0.0.1:2379 \
    --listen-peer-urls http://127.0.0.1:2380 \
    --cert-file pki/etcd.crt --key-file pki/etcd.key --client-cert-auth --trusted-ca-file pki/ca.crt
  # shellcheck disable=SC2086
  start apiserver "$bin/kube-apiserver" --etcd-servers https://127.0.0.1:2379 \
    --etcd-cafile pki/ca.crt --etcd-certfile pki/apiserver.crt --etcd-keyfile pki/apiserver.key \
    --bind-address $control --advertise-address $control --secure-port 6443 \
    --tls-cert-file pki/apiserver.crt --tls-private-key-file pki/apiserver.key --client-ca-file pki/ca.crt \
    --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction --anonymous-auth=false \
    --allow-privileged --profiling=false \
    --service-account-issuer https://kubernetes.default.svc --service-account-key-file pki/sa.pub \
    --service-account-signing-key-file pki/sa.key \
    --service-cluster-ip-range 10.96.0.0/16 --kubelet-preferred-address-types InternalIP \
    --kubelet-client-certificate pki/apiclient.crt --kubelet-client-key pki/apiclient.key \
    --kubelet-certificate-authority pki/ca.crt \
    --requestheader-client-ca-file pki/ca.crt --requestheader-allowed-names front-proxy-client \
    --requestheader-username-headers X-Remote-User --requestheader-group-headers X-Remote-Group \
    --requestheader-extra-headers-prefix X-Remote-Extra- \
    --proxy-client-cert-file pki/aggregator.crt --proxy-client-key-file pki/aggregator.key \
    "${audit[@]}" $APISERVER_FLAGS
}

start_controllers() { # controller manager, scheduler, and the rights the components need
  local common="--bind-address 127.0.0.1 --leader-elect=false --profiling=false"
  local files="--kubeconfig NAME.kubeconfig --authentication-kubeconfig NAME.kubeconfig"
  files="$files --authorization-kubeconfig NAME.kubeconfig"
  # shellcheck disable=SC2086
  start kcm "$bin/kube-controller-manager" ${files//NAME/kcm} $common \
    --use-service-account-credentials --kube-api-qps 200 --kube-api-burst 400 \
    --service-account-private-key-file pki/sa.key --root-ca-file pki/ca.crt \
    --cluster-signing-cert-file pki/ca.crt --cluster-signing-key-file pki/ca.key \
    --flex-volume-plugin-dir "$dir/plugins" $KCM_FLAGS
  # shellcheck disable=SC2086
  start scheduler "$bin/kube-scheduler" ${files//NAME/scheduler} $common $SCHEDULER_FLAGS
  k create clusterrolebinding apiserver-kubelet --clusterrole system:kubelet-api-admin \
    --user kube-apiserver-kubelet-client > /dev/null
  k apply -f "$here/parts/dnsrole.yaml" > /dev/null
}

dns_ready() { # CoreDNS has read the cluster's services
  local answer
  exec 3<> /dev/tcp/$control/8181
  printf 'GET /ready HTTP/1.0\r\n\r\n' >&3
  read -r answer <&3
  exec 3>&-
  [[ $answer == *" 200 "* ]]
}

devices_there() { # number: the node's fake devices are counted in
  local want; want=$(fake_gpus "$1")
  [ "$want" = 0 ] ||
    [ "$(k get node "node$1" -o 'jsonpath={.status.allocatable.nvidia\.com/gpu}')" = "$want" ]
}
