#!/usr/bin/env bash
# Submits a job to the namespace of the current kubectl context, in cluster mode, and waits for it.
#   examples/spark-on-kubernetes/submit.sh local:///opt/pillion/jobs/weather_alerts.py --copies 10
# Further Spark settings go into SPARK_ARGS: SPARK_ARGS="--conf spark.executor.instances=4" …
set -euo pipefail
folder=$(cd "$(dirname "$0")" && pwd)
namespace=$(kubectl config view --minify -o jsonpath='{..namespace}')
server=$(kubectl config view --minify -o jsonpath='{.clusters[0].cluster.server}')
secrets=$(mktemp -d)
trap 'rm -rf "$secrets"' EXIT
kubectl config view --minify --raw --flatten \
  -o jsonpath='{.clusters[0].cluster.certificate-authority-data}' | base64 -d >"$secrets/ca.crt"
# In a file, so that no list of processes shows it.
kubectl create token spark-submitter >"$secrets/token"
driver=weather-$(date +%s)-driver

# shellcheck disable=SC2086 # settings are words
"${SPARK_HOME:-$(python3 -c 'import pyspark; print(pyspark.__path__[0])')}/bin/spark-submit" \
  --master "k8s://$server" --deploy-mode cluster --properties-file "$folder/spark.conf" \
  --conf spark.kubernetes.namespace="${namespace:-default}" \
  --conf spark.kubernetes.driver.pod.name="$driver" \
  --conf spark.kubernetes.authenticate.submission.caCertFile="$secrets/ca.crt" \
  --conf spark.kubernetes.authenticate.submission.oauthTokenFile="$secrets/token" \
  --conf spark.kubernetes.driver.podTemplateFile="$folder/pod-template.yaml" \
  --conf spark.kubernetes.executor.podTemplateFile="$folder/pod-template.yaml" \
  ${SPARK_ARGS:-} "$@"

# spark-submit ends with 0 even where the driver has failed.
phase=$(kubectl get pod "$driver" -o jsonpath='{.status.phase}')
if [ "$phase" = Succeeded ]; then
  kubectl logs "$driver" --container spark | grep "^Published" || true
else
  kubectl logs "$driver" --container spark --tail=50 >&2
fi
echo "$driver: $phase"
[ "$phase" = Succeeded ]
