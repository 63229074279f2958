#!/bin/sh
# vllm 0.32.0, node 0 of 2 (10.0.0.1): starts server.
# Run it on that node: sh node-0.sh, or paste it there into sh or bash.

node_0() {
    set -eu

    # Drops every variable whose name begins with $1. The first name is there for when there is none.
    clear_env() {
        unset -v enginelaunch_none $(env | sed -n "s/^\($1[A-Za-z0-9_]*\)=.*/\1/p")
    }

    # --- server ---
    clear_env VLLM_PORT
    clear_env VLLM_DP_
    export GLOO_SOCKET_IFNAME=eth0
    export NCCL_SOCKET_IFNAME='=eth0'
    export TP_SOCKET_IFNAME=eth0
    export VLLM_HOST_IP=10.0.0.1
    exec vllm serve /models/Llama-3.3-70B-Instruct --host 0.0.0.0 --port 8000 --tensor-parallel-size 8 --pipeline-parallel-size 2 --distributed-executor-backend mp --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 --master-port 29501 --served-model-name llama-3.3-70b --max-model-len 32768
}

# A shell in which someone types is left as it is.
case $- in
    *i*) (node_0) ;;
    *) node_0 ;;
esac
