"""What vLLM and Ray take where nothing is said."""

HEALTH_PATH = "/health"
"""The path that answers 200 when the server can take requests."""

MASTER_PORT = 29501
"""--master-port when it is left out: vllm/config/parallel.py."""

DATA_PARALLEL_RPC_PORT = 29550
"""--data-parallel-rpc-port when it is left out: vllm/config/parallel.py."""

RAY_HEAD_PORT = 6379
"""--port of `ray start --head` when it is left out."""

RAY_CLIENT_SERVER_PORT = 10001
"""--ray-client-server-port of `ray start --head` when it is left out."""
