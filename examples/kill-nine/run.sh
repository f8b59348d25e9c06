#!/usr/bin/env bash
# Kill a deliverer with SIGKILL under load, again and again, and count what arrived.
#
#   examples/kill-nine/run.sh [KILLS]      20, unless told otherwise
#
# Each kill is a line on standard error. Needs pillion on PATH, jq, and port 18288, or the one that PORT says. Exit code 1: something was
# lost, came out of order, or came again under another sequence number.
set -euo pipefail

kills=${1:-20}
work=$(mktemp -d)
listeners=(operations archive)
declare -A children

end() {
  for child in "${children[@]}"; do
    kill -9 "$child" 2>/dev/null || true
  done
  wait 2>/dev/null || true
}
trap end EXIT

fail() {
  echo "FAILED: $*; what there is lies in $work" >&2
  exit 1
}

first_line() { # FILE PID: wait for a process to say where it listens
  until [ -s "$1" ]; do
    kill -0 "$2" 2>/dev/null || fail "a process did not start: $(tail -n 3 "$work/log")"
    sleep 0.05
  done
}

# Two listeners. Each prints one line for whatever arrives.
for name in "${listeners[@]}"; do
  pillion listen --port 0 --output json >"$work/$name" 2>>"$work/log" &
  children[$name]=$!
  first_line "$work/$name" $!
done

# Both are subscribed to all indications. A failed delivery is tried again a second later.
resource() { # KIND NAME SPEC
  jq -nc --arg kind "$1" --arg name "$2" --argjson spec "$3" \
    '{apiVersion: "pillion.dev/v1alpha1", $kind, metadata: {$name}, $spec}'
  echo ---
}
mkdir "$work/resources"
{
  resource IndicationService default '{"deliveryRetryIntervalSeconds": 1}'
  resource IndicationFilter alerts '{"query": "SELECT * FROM CIM_AlertIndication"}'
  protocol=CIM-XML
  for name in "${listeners[@]}"; do
    url=$(head -n 1 "$work/$name" | jq -r .listening)
    resource ListenerDestination "$name" "{\"destination\": \"$url/\", \"protocol\": \"$protocol\"}"
    resource IndicationSubscription "alerts-to-$name" \
      "{\"filterRef\": {\"name\": \"alerts\"}, \"destinationRef\": {\"name\": \"$name\"}}"
    protocol=CloudEvents
  done
} >"$work/resources/all.yaml"

# A fixed port, and none that the system gives to connections: the publisher must find it again.
url=http://127.0.0.1:${PORT:-18288}
start() {
  : >"$work/deliverer"
  pillion sidecar --resources "$work/resources" --journal "$work/journal" --intake "${url#http://}" \
    --telemetry 127.0.0.1:0 --log-level ERROR >"$work/deliverer" 2>>"$work/log" &
  children[deliverer]=$!
  first_line "$work/deliverer" $!
}

publish() { # until there is a file "stop": a part at a time, each until all of it is acknowledged
  local part=0 tries
  until [ -e "$work/stop" ]; do
    part=$((part + 1))
    jq -nc --argjson part "$part" 'range(500) | {class: "CIM_AlertIndication", properties: {
        IndicationIdentifier: "\($part)-\(.)", AlertType: 5, PerceivedSeverity: 6,
        ProbableCause: 1}}' >"$work/part.ndjson"
    # A part that was cut short is sent again whole: what had come is known by its identifiers.
    tries=0
    until pillion publish "$work/part.ndjson" --server "$url" --source kill-nine --ack durable \
      --batch 20 >>"$work/log" 2>&1; do
      ((tries += 1)) && [ "$tries" -lt 300 ] || return 1
      sleep 0.1
    done
    jq -r .properties.IndicationIdentifier "$work/part.ndjson" >>"$work/published"
  done
}

start
publish &
children[publisher]=$!

for ((kill = 1; kill <= kills; kill++)); do
  sleep "$((RANDOM % 2)).$((RANDOM % 10))"
  kill -9 "${children[deliverer]}"
  wait "${children[deliverer]}" 2>/dev/null || true
  echo "kill $kill of $kills" >&2
  start
done

touch "$work/stop"
wait "${children[publisher]}" || fail "the publisher gave up"
pillion drain --server "$url" --timeout 300 >>"$work/log" 2>&1 || fail "not everything was delivered"

published=$(wc -l <"$work/published")
echo "killed $kills times, published $published"
for name in "${listeners[@]}"; do
  kill "${children[$name]}"
  wait "${children[$name]}" || fail "listener $name ended badly"
  jq -r 'select(.verdict == "delivered").identifier' "$work/$name" >"$work/$name.delivered"
  repeats=$(jq -s 'map(select(.verdict == "duplicate")) | length' "$work/$name")
  # Whatever came more than once: how many came under more than one number.
  renumbered=$(jq -s 'map(select(.verdict)) | group_by(.identifier)
    | map(select(unique_by([.context, .number]) | length > 1)) | length' "$work/$name")
  delivered=$(wc -l <"$work/$name.delivered")
  echo "$name: delivered $delivered, came again $repeats, under another number $renumbered"
  cmp -s "$work/published" "$work/$name.delivered" ||
    fail "$name did not get exactly what was published, in that order:" \
      "$(diff "$work/published" "$work/$name.delivered" | head -n 5)"
  [ "$renumbered" = 0 ] || fail "$name got repeats under another number"
done
echo "nothing lost, nothing out of order"
kill "${children[deliverer]}"
wait "${children[deliverer]}" || fail "the deliverer ended badly"
rm -r "$work"
