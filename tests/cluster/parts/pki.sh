# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2154,SC2164  # cluster.sh sources this file: it sets the variables, and set -e ends a failed cd.
# One certificate authority per cluster, a client certificate and a kubeconfig per component.

# Writes pki/ and *.kubeconfig into the current folder, which is the cluster's.
certificates() {
  local user users="admin kcm scheduler proxy dns" names n
  mkdir -p pki
  cd pki
  openssl ecparam -name prime256v1 -genkey -noout -out ca.key
  openssl req -x509 -new -key ca.key -subj /CN=testcluster-ca -days 30 -out ca.crt \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,digitalSignature 2> /dev/null
  names=DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:localhost
  issue apiserver /CN=kube-apiserver "$names,IP:127.0.0.1,IP:$control,IP:10.96.0.1"
  issue etcd /CN=etcd IP:127.0.0.1
  issue admin /O=system:masters/CN=admin
  issue kcm /CN=system:kube-controller-manager
  issue scheduler /CN=system:kube-scheduler
  issue proxy /CN=system:kube-proxy
  issue dns /CN=system:kube-dns
  issue apiclient /CN=kube-apiserver-kubelet-client
  issue aggregator /CN=front-proxy-client
  for n in $(nodes); do
    issue "node$n" "/O=system:nodes/CN=system:node:node$n" "DNS:node$n,IP:$(node_address "$n")"
    users="$users node$n"
  done
  openssl ecparam -name prime256v1 -genkey -noout -out sa.key
  openssl ec -in sa.key -pubout -out sa.pub 2> /dev/null
  cd ..
  for user in $users; do kubeconfig "$user" > "$user.kubeconfig"; done
}

issue() { # file subject [subjectAltName]
  openssl ecparam -name prime256v1 -genkey -noout -out "$1.key"
  openssl req -new -key "$1.key" -subj "$2" 2> /dev/null |
    openssl x509 -req -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -out "$1.crt" -extfile <(
      printf 'keyUsage=critical,digitalSignature\nextendedKeyUsage=serverAuth,clientAuth\n%s\n' \
        "${3:+subjectAltName=$3}") 2> /dev/null
}

kubeconfig() { # user
  cat <<Y
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://$control:6443", certificate-authority: $dir/pki/ca.crt}}]
users: [{name: u, user: {client-certificate: $dir/pki/$1.crt, client-key: $dir/pki/$1.key}}]
Y
}
