{{/* The alerts, with the address of the manual where one is named. */}}
{{- define "pillion.alerts" -}}
{{- $operator := regexReplaceAll "(?s)^.*?groups:\n" (.Files.Get "files/operator-alerts.yaml") "" -}}
{{- $alerts := printf "%s%s" (.Files.Get "files/alerts.yaml") $operator -}}
{{- with .Values.monitoring.manual -}}
{{- $alerts = $alerts | replace "docs/runbook.md#" (printf "%s/runbook.html#" (trimSuffix "/" .)) -}}
{{- end -}}
{{- if .Values.monitoring.alerts -}}
{{- $alerts = include "pillion.changedAlerts" (list ($alerts | fromYaml) .Values.monitoring.alerts) -}}
{{- end -}}
{{- $alerts -}}
{{- end -}}

{{/* Of a rule file and the changes by name of alert: the rule file with the changes. */}}
{{- define "pillion.changedAlerts" -}}
{{- $file := index . 0 -}}
{{- $changes := index . 1 -}}
{{- $known := list -}}
{{- $groups := list -}}
{{- range $group := $file.groups -}}
{{- $rules := list -}}
{{- range $rule := $group.rules -}}
{{- $known = append $known $rule.alert -}}
{{- $change := get $changes $rule.alert | default dict -}}
{{- if hasKey $change "severity" -}}
{{- $_ := set $rule.labels "severity" $change.severity -}}
{{- end -}}
{{- if hasKey $change "for" -}}
{{- $_ := set $rule "for" (index $change "for") -}}
{{- end -}}
{{- if hasKey $change "threshold" -}}
{{- if not (regexMatch "[<>] [0-9.]+( \\* 86400)?$" $rule.expr) -}}
{{- fail (printf "monitoring.alerts.%s.threshold: this alert has no threshold. Remove it." $rule.alert) -}}
{{- end -}}
{{- $number := printf "${1} %v${2}" $change.threshold -}}
{{- $_ := set $rule "expr" (regexReplaceAll "([<>]) [0-9.]+( \\* 86400)?$" $rule.expr $number) -}}
{{- end -}}
{{- if dig "enabled" true $change -}}
{{- $rules = append $rules $rule -}}
{{- end -}}
{{- end -}}
{{- if $rules -}}
{{- $groups = append $groups (set (deepCopy $group) "rules" $rules) -}}
{{- end -}}
{{- end -}}
{{- range $name, $_ := $changes -}}
{{- if not (has $name $known) -}}
{{- fail (printf "monitoring.alerts.%s: there is no alert of this name. The manual lists them." $name) -}}
{{- end -}}
{{- end -}}
{{- toYaml (dict "groups" $groups) -}}
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
