#!/usr/bin/env bash
# Keep a deliverer's journal at three stores, lose its folder after SIGKILL, and count what arrived.
#
#   examples/stores/run.sh [--engine gateways|nats] [INDICATIONS]      gateways and 2000, unless told otherwise
#
# Needs pillion on PATH, jq, and ports 18400 to 18403, or the four that PORTS says. With nats the stores are three
# nats-servers, which keep one stream: it needs nats-server on PATH, or where NATS_SERVER says, and ports 18404 to
# 18406, or the three behind the four in PORTS. Exit code 1: something that was stable did not arrive, or a publisher
# was not told the right thing.
set -euo pipefail

engine=gateways
if [ "${1:-}" = --engine ]; then
  engine=${2:-}
  shift 2
fi
case $engine in
gateways) one="one gateway" two="two gateways" ;;
nats) one="one nats-server" two="two nats-servers" ;;
*)
  echo "--engine is gateways or nats, not '$engine'" >&2
  exit 2
  ;;
esac
count=${1:-2000}
read -ra ports <<<"${PORTS:-18400 18401 18402 18403 18404 18405 18406}"
port=${ports[0]}
stores=("${ports[@]:1:3}")
routes=("${ports[@]:4:3}")
work=$(mktemp -d)
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

resource() { # KIND NAME SPEC
  jq -nc --arg kind "$1" --arg name "$2" --argjson spec "$3" \
    '{apiVersion: "pillion.dev/v1alpha1", $kind, metadata: {$name}, $spec}'
  echo ---
}

# Three gateways that keep copies. A member's name is put into the URL of --gateway, so here it is its port.
gateway() { # PORT
  mkdir -p "$work/$1/resources"
  resource IndicationService "$1" '{"deliverer": {"mode": "Gateway"},
    "journalCopies": {"maximumBytes": "64Mi"}}' >"$work/$1/resources/all.yaml"
  : >"$work/$1/started"
  pillion sidecar --resources "$work/$1/resources" --journal "$work/$1/journal" --intake "127.0.0.1:$1" \
    --telemetry 127.0.0.1:0 --log-level ERROR >"$work/$1/started" 2>>"$work/log" &
  children[$1]=$!
  first_line "$work/$1/started" $!
}

# Three servers of one cluster. What they acknowledge is on their disks.
nats_server() { # PORT
  "${NATS_SERVER:-nats-server}" -c "$work/$1.conf" >>"$work/log" 2>&1 &
  children[$1]=$!
}

nats_servers() {
  local at urls
  urls=$(printf ', nats://127.0.0.1:%s' "${routes[@]}")
  for at in 0 1 2; do
    cat >"$work/${stores[$at]}.conf" <<EOF
server_name: n$at
listen: "127.0.0.1:${stores[$at]}"
jetstream {store_dir: "$work/${stores[$at]}", sync_interval: always}
cluster {name: example, listen: "127.0.0.1:${routes[$at]}", routes: [${urls:2}]}
EOF
    nats_server "${stores[$at]}"
  done
}

# Any client creates the stream. Here it is the shell, which speaks NATS.
stream='{"name": "journals", "subjects": ["pillion.journals.>"], "storage": "file", "num_replicas": 3,'
stream+=' "discard": "new", "allow_direct": true}'
create_stream() {
  local line
  exec 3<>"/dev/tcp/127.0.0.1/${stores[0]}" || return 1
  printf 'CONNECT {}\r\nSUB reply 1\r\nPUB $JS.API.STREAM.CREATE.journals reply %d\r\n%s\r\n' \
    "${#stream}" "$stream" >&3
  while read -r -t 5 line <&3; do
    case $line in
    *stream_create_response*error*) return 1 ;;
    *stream_create_response*) return 0 ;;
    esac
  done
  return 1
}

store() { # PORT: start it again
  if [ "$engine" = nats ]; then nats_server "$1"; else gateway "$1"; fi
}

if [ "$engine" = nats ]; then
  nats_servers
  tries=0
  until create_stream 2>>"$work/log"; do
    tries=$((tries + 1))
    [ "$tries" -lt 300 ] || fail "the stream cannot be created"
    sleep 0.2
  done
  exec 3>&-
  urls=$(printf '%s\n' "${stores[@]}" | jq -Rc '"nats://127.0.0.1:\(.)"' | jq -sc .)
  members="[{\"nats\": {\"name\": \"stream\", \"servers\": $urls, \"stream\": \"journals\",
    \"syncInterval\": \"Always\"}}]"
  reach=()
  missed='waiting for stream'
else
  for name in "${stores[@]}"; do
    gateway "$name"
  done
  members=$(printf '%s\n' "${stores[@]}" | jq -Rc '{gatewayRef: {name: .}}' | jq -sc .)
  reach=(--gateway 'http://127.0.0.1:{service}')
  missed="${stores[0]}.*${stores[1]}"
fi

away() { # CHILD
  kill -9 "${children[$1]}"
  wait "${children[$1]}" 2>/dev/null || true
}

listen() {
  : >"$work/listener"
  pillion listen --port "$port" --output json >>"$work/listener" 2>>"$work/log" &
  children[listener]=$!
  first_line "$work/listener" $!
}

# The deliverer. Its listener is down at first.
mkdir "$work/resources"
{
  resource IndicationService default "{\"deliveryRetryIntervalSeconds\": 1, \"deliveryRetryAttempts\": 1000,
    \"stores\": {\"groups\": [{\"name\": \"all\", \"members\": $members}], \"flightSize\": \"64Ki\"}}"
  resource IndicationFilter alerts '{"query": "SELECT * FROM CIM_AlertIndication"}'
  resource ListenerDestination operations "{\"destination\": \"http://127.0.0.1:$port/\", \"protocol\": \"CIM-XML\"}"
  resource IndicationSubscription alerts-to-operations \
    '{"filterRef": {"name": "alerts"}, "destinationRef": {"name": "operations"}}'
} >"$work/resources/all.yaml"

deliverer() {
  : >"$work/deliverer"
  pillion sidecar --resources "$work/resources" --journal "$work/journal" --session one \
    "${reach[@]}" --intake 127.0.0.1:0 --telemetry 127.0.0.1:0 \
    --log-level ERROR >"$work/deliverer" 2>>"$work/log" &
  children[deliverer]=$!
  first_line "$work/deliverer" $!
  url=$(head -n 1 "$work/deliverer" | jq -r .intake)
}

made=0
publish() { # COUNT LEVEL: exit code 0 once all have the level
  jq -nc --argjson first "$made" --argjson count "$1" 'range($first; $first + $count)
    | {class: "CIM_AlertIndication", properties: {IndicationIdentifier: "\(.)", AlertType: 5,
       PerceivedSeverity: 6, ProbableCause: 1}}' >"$work/part.ndjson"
  made=$((made + $1))
  pillion publish "$work/part.ndjson" --server "$url" --source stores --ack "$2" "${@:3}" >>"$work/log" 2>&1
}

deliverer
publish "$count" stable || fail "the stores did not take the journal"
echo "published $count; they are stable, and their listener is down"

away deliverer
rm -r "$work/journal"
echo "killed the deliverer, and removed its folder"

away "${stores[0]}"
deliverer
publish 10 stable || fail "one store of three was missed"
echo "$one is killed: the next deliverer has its journal from the others, and publishing goes on"

away "${stores[1]}"
until ! publish 100 durable --timeout 1; do :; done
tail -n 20 "$work/log" | grep -q "$missed" || fail "the missing stores were not named"
echo "$two are killed: publishing is refused, and the stores that are missed are named"

store "${stores[0]}"
store "${stores[1]}"
until publish 10 stable; do sleep 0.2; done
echo "they are back: publishing goes on"

listen
pillion drain --server "$url" --timeout 300 >>"$work/log" 2>&1 || fail "not everything was delivered"
kill "${children[listener]}"
wait "${children[listener]}" || fail "the listener ended badly"
jq -r 'select(.verdict == "delivered").identifier' "$work/listener" | sort -n >"$work/delivered"
jq -r 'select(.verdict == "duplicate").identifier' "$work/listener" >"$work/repeats"
[ "$(head -n $((count + 10)) "$work/delivered" | sha256sum)" = "$(seq 0 $((count + 9)) | sha256sum)" ] ||
  fail "something that was stable did not arrive"
echo "delivered $(wc -l <"$work/delivered"), came again $(wc -l <"$work/repeats"): nothing that was stable is lost"
kill "${children[deliverer]}"
wait "${children[deliverer]}" || fail "the deliverer ended badly"
rm -r "$work"
