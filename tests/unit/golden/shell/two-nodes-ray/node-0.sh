#!/bin/sh
# vllm 0.32.0, node 0 of 2 (10.0.0.1): starts ray-head, server.
# Run it on that node: sh node-0.sh, or paste it there into sh or bash.
# It needs these variables: HF_TOKEN.

node_0() {
    set -eu

    fail() {
        printf '%s\n' "node-0: $*" >&2
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
' node-0 "$@" &
        wait "$!"
    }

    # Whether one of the processes runs.
    running() {
        for pid in "$@"; do
            if kill -0 "$pid" 2>/dev/null; then return 0; fi
        done
        return 1
    }

    # Sends signal $1 to the processes $3 and further, and gives them $2 seconds to end.
    stop_processes() {
        signal=$1 seconds=$2
        shift 2
        for pid in "$@"; do kill -s "$signal" "$pid" 2>/dev/null || :; done
        while [ "$seconds" -gt 0 ] && running "$@"; do
            sleep 1
            seconds=$((seconds - 1))
        done
    }

    # Ends the script when command $1, which is process $2, has ended.
    must_run() {
        if running "$2"; then return 0; fi
        code=0
        wait "$2" || code=$?
        fail "$1 has ended with exit code $code"
    }

    # Nothing is started without these.
    : "${HF_TOKEN:?set HF_TOKEN to the secret for HF_TOKEN}"
    secret_from /run/secrets/ray-token >/dev/null
    command -v python3 >/dev/null || fail "python3 is needed for waiting, and is not on PATH"

    # When the script ends, so do the commands that it has started.
    pid_1=''
    pid_2=''
    stop_all() {
        trap - EXIT HUP INT TERM
        stop_processes TERM 30 $pid_2
        stop_processes TERM 15 $pid_2
        stop_processes KILL 5 $pid_2
        stop_processes TERM 45 $pid_1
        stop_processes KILL 5 $pid_1
    }
    trap stop_all EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM

    # --- ray-head ---
    (
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
        export VLLM_HOST_IP=10.0.0.1
        exec ray start --block --head --port 6379 --node-ip-address 10.0.0.1 --include-dashboard=false --num-gpus 8 --node-manager-port 6380 --object-manager-port 6381 --min-worker-port 10100 --max-worker-port 10299
    ) &
    pid_1=$!

    # --- server ---
    wait_for server tcp://10.0.0.1:6379 connection 600 0.5 ray-head "$pid_1"
    (
        clear_env VLLM_PORT
        clear_env VLLM_DP_
        export HF_TOKEN="${HF_TOKEN:?}"
        RAY_AUTH_TOKEN=$(secret_from /run/secrets/ray-token)
        export RAY_AUTH_TOKEN="${RAY_AUTH_TOKEN%.}"
        export RAY_ADDRESS=10.0.0.1:6379
        export RAY_AUTH_MODE=token
        exec vllm serve /models/Llama-3.3-70B-Instruct --host 0.0.0.0 --port 8000 --tensor-parallel-size 8 --pipeline-parallel-size 2 --distributed-executor-backend ray --served-model-name llama-3.3-70b --max-model-len 32768
    ) &
    pid_2=$!

    # All but the last have to become ready, where they can be asked.
    wait_for 'readiness of ray-head' tcp://10.0.0.1:6379 connection 600 0.5 ray-head "$pid_1" server "$pid_2"

    # The script ends when a command does; server gives it its exit code.
    while :; do
        must_run ray-head "$pid_1"
        if ! running "$pid_2"; then
            wait "$pid_2"
            exit
        fi
        sleep 1
    done
}

# A shell in which someone types is left as it is.
case $- in
    *i*) (node_0) ;;
    *) node_0 ;;
esac
