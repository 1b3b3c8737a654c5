{{- define "parallelmodel.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- define "parallelmodel.fullname" -}}
{{- if .Values.fullnameOverride -}}{{ .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains (include "parallelmodel.name" .) .Release.Name -}}{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else -}}{{ printf "%s-%s" .Release.Name (include "parallelmodel.name" .) | trunc 52 | trimSuffix "-" }}
{{- end -}}
{{- end -}}
{{- define "parallelmodel.selector" -}}
app.kubernetes.io/name: {{ include "parallelmodel.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: controller
{{- end -}}
{{- define "parallelmodel.labels" -}}
{{ include "parallelmodel.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- include "parallelmodel.commonLabels" . }}
{{- end -}}
{{/* commonLabels, each on a line of its own; a key that another label of the chart has is refused, not doubled */}}
{{- define "parallelmodel.commonLabels" -}}
{{- range $key, $_ := .Values.commonLabels -}}
{{- if has $key (list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" "app.kubernetes.io/version" "app.kubernetes.io/managed-by") -}}
{{- fail (printf "commonLabels has %s, which the chart sets itself: choose another key" $key) -}}
{{- end -}}
{{- range $name, $labels := dict "podLabels" $.Values.podLabels "dashboard.labels" $.Values.dashboard.labels "alerts.labels" $.Values.alerts.labels "metrics.serviceMonitor.labels" $.Values.metrics.serviceMonitor.labels -}}
{{- if hasKey $labels $key -}}
{{- fail (printf "commonLabels and %s both have %s: keep one of them" $name $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with .Values.commonLabels }}{{ printf "\n%s" (toYaml .) }}{{ end -}}
{{- end -}}
{{/* number of controller pods: replicaCount, or else replicas */}}
{{- define "parallelmodel.replicas" -}}
{{- if kindIs "invalid" .Values.replicaCount -}}{{ .Values.replicas }}{{- else -}}{{ .Values.replicaCount }}{{- end -}}
{{- end -}}
{{- define "parallelmodel.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}{{ default (include "parallelmodel.fullname" .) .Values.serviceAccount.name }}
{{- else -}}{{ default "default" .Values.serviceAccount.name }}
{{- end -}}
{{- end -}}
{{/* "repository:tag" or "repository@digest"; call with (list image appVersion) */}}
{{- define "parallelmodel.image" -}}
{{- $image := index . 0 -}}
{{- if $image.digest -}}{{ $image.repository }}@{{ $image.digest }}{{- else -}}{{ $image.repository }}:{{ default (index . 1) $image.tag }}{{- end -}}
{{- end -}}
{{/* The controller's rights on objects in namespaces: no Secret, no wildcard, and nothing that no test uses
(tests/reliability/test_traces.py). docs/design/operator.md lists them. */}}
{{- define "parallelmodel.rules" -}}
- apiGroups: [parallelmodel.dev]
  resources: [parallelmodels]
  verbs: [list, watch]
- apiGroups: [parallelmodel.dev]
  resources: [parallelmodels/status]
  verbs: [patch]
- apiGroups: [parallelmodel.dev]
  resources: [parallelmodels/finalizers]
  verbs: [update]                   # for blockOwnerDeletion, if OwnerReferencesPermissionEnforcement is enabled
- apiGroups: [""]
  resources: [pods]
  verbs: [create, get, list, watch, delete]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [create, get, list, watch, patch, delete]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [create, get]              # create: the PVC of a model on the hub; get: access modes, for replicas of several pods
- apiGroups: [""]
  resources: [services]
  verbs: [create, get, list, watch, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [create, get, list, watch, patch, delete]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, list, patch]      # list: Events of a pod whose volume does not mount
{{- if .Values.podMonitors.enabled }}
- apiGroups: [monitoring.coreos.com]
  resources: [podmonitors]
  verbs: [create, get, patch, delete]
{{- end }}
{{- if .Values.networkPolicies.enabled }}
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [create, get, patch, delete]
{{- end }}
{{- if .Values.podGroups.enabled }}
- apiGroups: [scheduling.k8s.io]
  resources: [podgroups]
  verbs: [create, get]              # the garbage collector removes them with their pods
{{- end }}
{{- if .Values.dra.enabled }}
- apiGroups: [resource.k8s.io]
  resources: [resourceclaimtemplates]
  verbs: [create, get, delete]
{{- end }}
{{- if .Values.gatewayApi.enabled }}
- apiGroups: [gateway.networking.k8s.io]
  resources: [httproutes]
  verbs: [create, get, patch, delete]
- apiGroups: [inference.networking.k8s.io]
  resources: [inferencepools]
  verbs: [create, get, patch, delete]
{{- end }}
{{- end -}}
