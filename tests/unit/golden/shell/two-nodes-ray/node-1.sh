#!/bin/sh
# vllm 0.32.0, node 1 of 2 (10.0.0.2): starts ray-join.
# Run it on that node: sh node-1.sh, or paste it there into sh or bash.
# It needs these variables: HF_TOKEN.

node_1() {
    set -eu

    fail() {
        printf '%s\n' "node-1: $*" >&2
        exit 1
    }

    # Drops every variable whose name begins with $1. The first name is there for when there is none.
    clear_env() {
        unset -v enginelaunch_none $(env | sed -n "s/^\($1[A-Za-z0-9_]*\)=.*/\1/p")
    }

    # The secret in file $1, less one newline at its end. A dot follows it, since $(...) drops all newlines.
    secret_from() (
        text=$(cat -- "$1" && printf .) || fail "cannot read the secret file $1"
        newline=$(printf '\n.')
        text=${text%.}
        text=${text%"${newline%.}"}
        [ -n "$text" ] || fail "the secret file $1 is empty"
        printf '%s.' "$text"
    )

    # Waits until an address gives what is expected: a connection, or an HTTP status.
    # $1 who waits, $2 URL, $3 what is expected, $4 seconds, $5 interval; then names and processes
    # that must not end meanwhile. python3 asks, because it does so alike on all systems, with IPv6
    # and TLS, where nc and curl are missing or differ.
    wait_for() {
        python3 -I -c '
import http.client, os, socket, sys, time
from urllib.parse import urlsplit

script, who, url, expected, seconds, interval, *alive = sys.argv[1:]
to, shell, end = urlsplit(url), os.getppid(), time.monotonic() + float(seconds)

def ask():
    if expected == "connection":
        socket.create_connection((to.hostname, to.port), 5).close()
        return
    kind, options = http.client.HTTPConnection, {}
    if to.scheme == "https":
        import ssl
        kind, options = http.client.HTTPSConnection, {"context": ssl._create_unverified_context()}
    connection = kind(to.hostname, to.port, timeout=5, **options)
    connection.request("GET", to.path)
    status = connection.getresponse().status
    connection.close()
    if str(status) != expected:
        raise OSError("HTTP status %s, not %s" % (status, expected))

print("%s: %s waits for %s, up to %s s" % (script, who, url, seconds), file=sys.stderr)
while True:
    try:
        ask()
        sys.exit()
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = error
    for name, process in zip(alive[::2], alive[1::2]):
        try:
            os.kill(int(process), 0)
        except ProcessLookupError:
            sys.exit("%s: %s has ended while %s waited for %s" % (script, name, who, url))
    if time.monotonic() >= end:
        sys.exit("%s: %s waited %s s for %s in vain: %s" % (script, who, seconds, url, reason))
    if os.getppid() != shell:
        sys.exit(1)
    time.sleep(float(interval))
' node-1 "$@" &
        wait "$!"
    }

    # Nothing is started without these.
    : "${HF_TOKEN:?set HF_TOKEN to the secret for HF_TOKEN}"
    secret_from /run/secrets/ray-token >/dev/null
    command -v python3 >/dev/null || fail "python3 is needed for waiting, and is not on PATH"

    # --- ray-join ---
    wait_for ray-join tcp://10.0.0.1:6379 connection 600 0.5
    clear_env VLLM_PORT
    clear_env VLLM_DP_
    clear_env RAY_ADDRESS
    export HF_TOKEN="${HF_TOKEN:?}"
    RAY_AUTH_TOKEN=$(secret_from /run/secrets/ray-token)
    export RAY_AUTH_TOKEN="${RAY_AUTH_TOKEN%.}"
    export GLOO_SOCKET_IFNAME=eth0
    export NCCL_SOCKET_IFNAME='=eth0'
    export RAY_AUTH_MODE=token
    export TP_SOCKET_IFNAME=eth0
    export VLLM_HOST_IP=10.0.0.2
    exec ray start --block --address 10.0.0.1:6379 --node-ip-address 10.0.0.2 --num-gpus 8 --node-manager-port 6380 --object-manager-port 6381 --min-worker-port 10100 --max-worker-port 10299
}

# A shell in which someone types is left as it is.
case $- in
    *i*) (node_1) ;;
    *) node_1 ;;
esac
