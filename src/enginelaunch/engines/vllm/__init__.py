"""vLLM: its commands on one node and on several, by its own multiprocessing or by Ray."""

from enginelaunch.engines.vllm.engine import VLLM

__all__ = ["VLLM"]
