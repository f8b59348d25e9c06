{{- define "pillion.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 40 characters, so that a suffix leaves a valid name of a Service (63). */}}
{{- define "pillion.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "pillion.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The name of cluster-scoped objects. Several releases may each serve some namespaces. */}}
{{- define "pillion.clusterName" -}}
{{- if .Values.scope.namespaces -}}
{{- printf "%s-%s" (include "pillion.fullname" .) .Release.Namespace -}}
{{- else -}}
{{- include "pillion.fullname" . -}}
{{- end -}}
{{- end -}}

{{- define "pillion.operator" -}}{{ include "pillion.fullname" . }}-operator{{- end -}}
{{- define "pillion.webhook" -}}{{ include "pillion.fullname" . }}-webhook{{- end -}}
{{- define "pillion.console" -}}{{ include "pillion.fullname" . }}-console{{- end -}}
{{- define "pillion.gateways" -}}{{ include "pillion.fullname" . }}-gateways{{- end -}}
{{- define "pillion.injector" -}}{{ include "pillion.clusterName" . }}-injector{{- end -}}

{{- define "pillion.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "pillion.operator" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "pillion.selector" -}}
app.kubernetes.io/name: {{ include "pillion.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "pillion.labels" -}}
{{- include "pillion.labelsWith" (list . nil) -}}
{{- end -}}

{{/* The labels of an object with labels of its own. */}}
{{- define "pillion.labelsWith" -}}
{{- $chart := index . 0 -}}
{{- $own := index . 1 | default dict -}}
{{- $labels := include "pillion.ownLabels" $chart | fromYaml -}}
{{- toYaml (merge $labels (deepCopy $own) (deepCopy ($chart.Values.commonLabels | default dict))) -}}
{{- end -}}

{{/* The chart's labels override commonLabels. */}}
{{- define "pillion.ownLabels" -}}
{{ include "pillion.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: pillion
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "pillion.reference" -}}
{{- $image := index . 0 -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository (default (index . 1) $image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "pillion.image" -}}
{{- include "pillion.reference" (list .Values.image .Chart.AppVersion) -}}
{{- end -}}

{{- define "pillion.delivererImage" -}}
{{- if .Values.deliverer.image.repository -}}
{{- include "pillion.reference" (list .Values.deliverer.image .Chart.AppVersion) -}}
{{- else -}}
{{- include "pillion.image" . -}}
{{- end -}}
{{- end -}}

{{- define "pillion.certManager" -}}
{{- if and .Values.injection.enabled (eq .Values.injection.certificates.source "CertManager") }}true{{ end -}}
{{- end -}}

{{/* Patching pods is a strong right: the operator gets it only if a policy can limit it to one annotation. */}}
{{- define "pillion.poke" -}}
{{- if and .Values.poke.enabled (semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version) }}true{{ end -}}
{{- end -}}

{{- define "pillion.policies" -}}
{{- if semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version }}true{{ end -}}
{{- end -}}

{{/* The policy that limits the operator's writes. Without it a ClusterRole needs the user's consent. */}}
{{- define "pillion.writePolicy" -}}
{{- if .Values.rbac.admissionPolicy -}}
{{- if include "pillion.policies" . }}true
{{- else if and .Values.rbac.create (not .Values.scope.namespaces) -}}
{{- fail "This Kubernetes has no ValidatingAdmissionPolicy (1.30), so nothing limits the operator to its own objects: its rights equal those of a cluster admin. Set scope.namespaces, or accept this with rbac.admissionPolicy=false." -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What the operator does in the namespaces that it serves. */}}
{{- define "pillion.rules" -}}
{{- /* Objects are read by list and watch alone, and written by server-side apply: that is patch, and
create where there is none. */ -}}
- apiGroups: [pillion.dev]
  resources: [indicationfilters, indicationreplays, indicationservices, indicationsubscriptions, listenerdestinations]
  verbs: [list, watch]
- apiGroups: [pillion.dev]
  resources:
    - indicationfilters/status
    - indicationreplays/status
    - indicationservices/status
    - indicationsubscriptions/status
    - listenerdestinations/status
  verbs: [patch]
# The finalizer of a destination that is drained before it goes.
- apiGroups: [pillion.dev]
  resources: [listenerdestinations]
  verbs: [patch]
# Finished replays, after their ttlSecondsAfterFinished.
- apiGroups: [pillion.dev]
  resources: [indicationreplays]
  verbs: [delete]
# The rendered configuration, and what users have labelled pillion.dev/credentials. Roles cannot
# select by label; the operator does.
- apiGroups: [""]
  resources: [secrets]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch{{ if include "pillion.poke" . }}, patch{{ end }}]
{{- if and .Values.injection.enabled .Values.injection.evict }}
- apiGroups: [""]
  resources: [pods/eviction]
  verbs: [create]
{{- end }}
# What a gateway is made of, which goes with its service, and the policy of pods with a sidecar.
- apiGroups: [""]
  resources: [services, serviceaccounts, configmaps]
  verbs: [list, watch, create, patch]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [list, watch, create, patch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [list, watch, create, patch]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- end -}}

{{/* The restricted profile, with single fields replaced. */}}
{{- define "pillion.podSecurityContext" -}}
{{- $context := dict "runAsNonRoot" true "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{- if not (kindIs "invalid" .Values.runAsUser) -}}
{{- $user := int64 .Values.runAsUser -}}
{{- $context = merge $context (dict "runAsUser" $user "runAsGroup" $user) -}}
{{- end -}}
{{- toYaml (mergeOverwrite $context (deepCopy (.Values.podSecurityContext | default dict))) -}}
{{- end -}}

{{- define "pillion.securityContext" -}}
{{- $context := dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true -}}
{{- $context = merge $context (dict "capabilities" (dict "drop" (list "ALL"))) -}}
{{- toYaml (mergeOverwrite $context (deepCopy (.Values.securityContext | default dict))) -}}
{{- end -}}

{{- define "pillion.telemetryPort" -}}{{ int (.Values.telemetryPort | default 8081) }}{{- end -}}
