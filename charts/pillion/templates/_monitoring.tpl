{{/* The alerts, with the address of the manual where one is named. */}}
{{- define "pillion.alerts" -}}
{{- $alerts := .Files.Get "files/alerts.yaml" -}}
{{- with .Values.monitoring.manual -}}
{{- $alerts = $alerts | replace "docs/operating.md#" (printf "%s/operating.html#" (trimSuffix "/" .)) -}}
{{- end -}}
{{- $alerts -}}
{{- end -}}

{{/* The labels of the operator's pods as a label selector in text. */}}
{{- define "pillion.selectorText" -}}
{{- $parts := list -}}
{{- range $label, $value := include "pillion.selector" . | fromYaml -}}
{{- $parts = append $parts (printf "%s=%s" $label $value) -}}
{{- end -}}
{{- join "," $parts -}}
{{- end -}}

{{/* What the Prometheus operator gives every target, of the labels of a pod's container. */}}
{{- define "pillion.targetLabels" -}}
- source_labels: [__meta_kubernetes_pod_phase]
  action: drop
  regex: Failed|Succeeded
- source_labels: [__meta_kubernetes_pod_container_port_name]
  action: keep
  regex: {{ . }}
- source_labels: [__meta_kubernetes_namespace]
  target_label: namespace
- source_labels: [__meta_kubernetes_pod_name]
  target_label: pod
- source_labels: [__meta_kubernetes_pod_container_name]
  target_label: container
- target_label: endpoint
  replacement: {{ . }}
{{- end -}}
