#!/bin/sh
# vllm 0.32.0, node 1 of 2: starts worker.
# Run it on that node: sh node-1.sh, or paste it there into sh or bash.
# It needs these variables: LEADER_ADDR, NODE_ADDR.
# NODE_RANK is 1 where it is not set.

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

    # Nothing is started without these.
    : "${LEADER_ADDR:?set LEADER_ADDR to the address of node 0, without brackets}"
    : "${NODE_ADDR:?set NODE_ADDR to the address of this node, without brackets}"
    NODE_RANK=${NODE_RANK:-1}
    case $NODE_RANK in *[!0-9]* | 0?*) fail "NODE_RANK is no whole number: $NODE_RANK" ;; esac

    # --- worker ---
    clear_env VLLM_PORT
    clear_env VLLM_DP_
    export VLLM_HOST_IP="$NODE_ADDR"
    exec vllm serve /models/Llama-3.3-70B-Instruct --tensor-parallel-size 8 --pipeline-parallel-size 2 --distributed-executor-backend mp --nnodes 2 --node-rank "$NODE_RANK" --master-addr "$LEADER_ADDR" --master-port 29501 --headless
}

# A shell in which someone types is left as it is.
case $- in
    *i*) (node_1) ;;
    *) node_1 ;;
esac
