# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2154  # cluster.sh sources this file and sets these variables.
# The configuration files of a cluster, written once by `up`.

cluster_configs() {
  proxy_config proxy.yaml node0 $control
  # A test may serve a registry of its own at this port of the control plane, without TLS.
  mkdir -p "registries/$control:5000"
  cat > "registries/$control:5000/hosts.toml" <<Y
server = "http://$control:5000"
[host."http://$control:5000"]
capabilities = ["pull", "resolve"]
Y
  echo "nameserver $control" > resolv.conf                         # for pods
  printf 'nameserver %s\nsearch default.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:3\n' $control \
    > exec.resolv.conf
  cat > Corefile <<Y
.:53 {
  bind $control
  ready $control:8181
  errors
  kubernetes cluster.local in-addr.arpa {
    kubeconfig $dir/dns.kubeconfig
    pods insecure
    ttl 1
  }
}
Y
}

node_configs() { # number
  local n=$1 d=$dir/node$1
  mkdir -p "$d"/{cni,log,cmd,containerd,kubelet,sysctl,var-log,opt,plugins}
  containerd_config "$d" > "$d/containerd.toml"
  pod_network "$n" > "$d/cni/10-pods.conflist"
  kubelet_config "$n" "$d" > "$d/kubelet.yaml"
  proxy_config "$d/proxy.yaml" "node$n" "$(node_address "$n")"
}

containerd_config() { # folder. Understood by containerd 1.6 (measured) to 2; every path is the node's own
  cat <<Y
version = 2
root = "$1/containerd"
state = "/run/containerd"
[grpc]
  address = "$sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "$1/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:test"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$([ -x /usr/lib/cni/ptp ] && echo /usr/lib/cni || echo /opt/cni/bin)"
    conf_dir = "$1/cni"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "$dir/registries"
Y
}

# ptp, not bridge: no bridge netfilter is needed, and answers of a ClusterIP always pass where they are translated back
pod_network() { # number
  cat <<Y
{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "ptp", "ipMasq": false,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.$1.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
Y
}

kubelet_config() { # number folder
  cat <<Y
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
$(kubelet_cgroup_settings "$1")
containerRuntimeEndpoint: unix://$sock
address: $(node_address "$1")
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $dir/pki/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $dir/pki/node$1.crt
tlsPrivateKeyFile: $dir/pki/node$1.key
readOnlyPort: 0
makeIPTablesUtilChains: false
failSwapOn: false
oomScoreAdj: 0
maxOpenFiles: 20000
clusterDNS: [$control]
clusterDomain: cluster.local
resolvConf: $dir/resolv.conf
volumePluginDir: $2/plugins
evictionHard: {memory.available: 50Mi, nodefs.available: 100Mi, imagefs.available: 100Mi, nodefs.inodesFree: 1%}
imageGCHighThresholdPercent: 100
nodeStatusUpdateFrequency: 2s
nodeLeaseDurationSeconds: $LEASE
Y
}

proxy_config() { # file node-name address
  cat > "$1" <<Y
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: $PROXY_MODE
clientConnection: {kubeconfig: $dir/proxy.kubeconfig}
hostnameOverride: $2
clusterCIDR: 10.88.0.0/16
bindAddress: $3
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
conntrack: {maxPerCore: 0, min: 0}
Y
}
