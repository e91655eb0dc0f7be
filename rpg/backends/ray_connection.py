"""Connecting to a running Ray cluster."""

import json
import os
import re
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rpg.errors import UserError, install_command

SAID_SECONDS = 60.0
"""How often what no node is large enough for says that it waits."""

REPORT_SECONDS = 10.0
"""Ray's nodes report their free resources with a delay."""


class ClusterError(UserError):
    """A Ray cluster that cannot be used; `str(error)` is one line."""


class RayNotUp(ClusterError):
    """A Ray that was to be started here, or was there a moment ago, and is not: worth another
    attempt."""


def may_come_up(error: Exception) -> bool:
    """Whether an error of `ray.init` is of the moment: Ray has no class of its own for that.

    Processes that are slow or die, and connections that fail, are told by RuntimeError,
    ConnectionError, TimeoutError or a plain Exception (2.60: ray/_private/node.py, services.py).
    Wrong arguments, missing packages, another version and the file system (a path that is too long
    for a socket, a folder that cannot be written) stay as they are.
    """
    if isinstance(error, OSError):
        return isinstance(error, ConnectionError | TimeoutError | BlockingIOError)
    wrong = isinstance(error, TypeError | ValueError | LookupError | AttributeError | ImportError)
    return not wrong and not re.search("Version mismatch|Unknown keyword argument", str(error))


def use_token() -> None:
    """Make Ray use the authentication token, if there is one: it must be told to. Call before ray
    is imported."""
    token = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or "~/.ray/auth_token").expanduser()
    if "RAY_AUTH_TOKEN" in os.environ or token.is_file():
        os.environ.setdefault("RAY_AUTH_MODE", "token")


def connect(address: str, field: str) -> Any:
    """The module ray, connected to the cluster at `address`, whose nodes run the code of this
    process from now on.

    `field` is the configuration field with the address, for the message. Raises ClusterError: ray
    is not installed, or there is no such cluster.
    """
    use_token()
    try:
        if ":" in address.removeprefix("ray://"):
            probe(address)
        import ray  # noqa: PLC0415 (optional, and takes a second)

        if not ray.is_initialized():
            # The cluster runs the code of this process, whatever is installed there.
            ours = {"py_modules": [str(Path(__file__).parents[1])]}
            ray.init(address=address, runtime_env=ours, log_to_driver=False, logging_level="ERROR")
    except ImportError as error:
        raise ClusterError(
            f"{field}: ray cannot be imported ({error}); {install_command('verl')}, or "
            f"choose {{type: here}}"
        ) from error
    except Exception as error:  # a dozen kinds, of the network and of Ray
        hint = "`ray status` shows where one is; {type: here} needs none"
        if "token" in str(error).lower():
            hint = (
                "set RAY_AUTH_TOKEN, or RAY_AUTH_TOKEN_PATH to a copy of the head's "
                "~/.ray/auth_token"
            )
        raise ClusterError(
            f"{field}: no Ray cluster at {address!r} ({last_line(error)}); {hint}"
        ) from error
    return ray


def promised(ray: Any) -> int:
    """How many nodes Ray's autoscaler is about to add; 0 also if there is none, or it cannot be
    asked (ray://)."""
    with suppress(Exception):
        from ray.autoscaler.v2.sdk import get_cluster_status  # noqa: PLC0415 (as above)

        status = get_cluster_status(ray.get_runtime_context().gcs_address)
        count = sum(launch.count for launch in status.pending_launches) + len(status.pending_nodes)
        if count:
            return int(count)
    with suppress(Exception):  # the first autoscaler (ray/autoscaler/_private/monitor.py)
        from ray.experimental.internal_kv import _internal_kv_get  # noqa: PLC0415 (as above)

        report = json.loads(_internal_kv_get(b"__autoscaling_status"))["autoscaler_report"]
        return int(sum(report["pending_launches"].values())) + len(report["pending_nodes"])
    return 0


def await_nodes(
    ray: Any,
    lacking: Callable[[], str | None],
    bundles: list[dict[str, float]],
    say: Callable[[str], None],
) -> None:
    """Before Ray is asked for something that it would wait for without end. An autoscaler is asked
    to add what is lacking, and waited for as long as it promises nodes. Raises ClusterError: Ray
    does not have it, and no node is promised.
    """
    if not lacking():
        return
    from ray.autoscaler.sdk import request_resources  # noqa: PLC0415 (as above)

    request_resources(bundles=bundles)
    deadline = time.monotonic() + REPORT_SECONDS
    said = -SAID_SECONDS
    try:
        while lacks := lacking():
            now = time.monotonic()
            coming = promised(ray)
            if coming:
                deadline = now + REPORT_SECONDS
            if coming and now - said >= SAID_SECONDS:
                said = now
                say(f"waits: {lacks}; the autoscaler promises {coming} nodes")
            if now > deadline:
                raise ClusterError(lacks)
            time.sleep(0.5)
    finally:
        request_resources(bundles=[])  # from here on, workers hold the nodes


def last_line(error: BaseException) -> str:
    """The reason in one of Ray's errors of many lines, which comes last."""
    return str(error).strip().rpartition("\n")[2].strip() or type(error).__name__


def probe(address: str) -> None:
    """Fail at once when nothing answers at `host:port`: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    socket.create_connection((host, int(port)), timeout=10).close()
