"""Where the flows of `rpg serve` stood before they were in flows.serve.deployments: entry points of older deployments."""

from flows.serve.deployments import aggregate, audit, evaluate, nightly, sweep

__all__ = ["aggregate", "audit", "evaluate", "nightly", "sweep"]
