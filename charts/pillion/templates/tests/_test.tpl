{{- define "pillion.test" -}}{{ include "pillion.fullname" . }}-test{{- end -}}

{{/* Where the test has its resources: a namespace that is served, and where pods are injected. */}}
{{- define "pillion.testNamespace" -}}
{{- if .Values.test.namespace -}}
{{- .Values.test.namespace -}}
{{- else if .Values.scope.namespaces -}}
{{- first .Values.scope.namespaces -}}
{{- else -}}
{{- include "pillion.clusterName" . }}-{{ .Release.Namespace | trunc 15 | trimSuffix "-" }}-test
{{- end -}}
{{- end -}}

{{/* The name of the resources: a service's has 44 characters at most. */}}
{{- define "pillion.testName" -}}
{{- include "pillion.fullname" . | trunc 38 | trimSuffix "-" }}-check
{{- end -}}

{{- define "pillion.testLabels" -}}
app.kubernetes.io/name: {{ include "pillion.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: test
app.kubernetes.io/part-of: pillion
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "pillion.testHook" -}}
helm.sh/hook: test
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}
