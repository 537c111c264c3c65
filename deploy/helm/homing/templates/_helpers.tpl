{{- define "homing.name" -}}
{{- if contains "homing" .Release.Name }}{{ .Release.Name }}{{ else }}{{ printf "%s-homing" .Release.Name }}{{ end -}}
{{- end }}

{{- /* The labels that select pods; they never change. */}}
{{- define "homing.selector" -}}
app.kubernetes.io/name: homing
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "homing.labels" -}}
{{ include "homing.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "homing.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* What all pods have: no privileges, a read-only root, no variables for services, no token of the cluster. */}}
{{- define "homing.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "homing.container" -}}
image: {{ include "homing.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
envFrom:
  - secretRef: {name: {{ .Values.secretName }}}
{{- end }}
