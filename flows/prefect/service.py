"""A server process: how it is started, asked whether it is healthy, waited for and ended."""

import os
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from rpg.errors import UserError
from rpg.system.processes import child_environment, owner_mark

STILL_SECONDS = 60.0
"""How long a server that starts may do nothing at all. A busy machine makes it slow, but never that
still."""
START_SECONDS = 900.0
"""How long a server that starts may keep busy without an answer."""
RESTARTS = 10
"""A service that ends this often within five minutes is given up."""


class ServerError(UserError):
    """A server does not start, or ends again and again; the message names its log."""


@dataclass
class Service:
    """A server process: command, URL of its health check (None: healthy while it listens), and when
    it was started."""

    name: str
    command: list[str]
    health: str | None
    environment: dict[str, str]
    log: Path
    marks: Callable[[], dict[str, str]] = owner_mark
    """Variables that say how long it may live (rpg.system.processes)."""
    process: subprocess.Popen[bytes] | None = None
    starts: list[float] = field(default_factory=list)
    since: float = 0.0
    silent: int = 0
    _moved: tuple[object, float] = (None, 0.0)

    def start(self) -> None:
        self.starts = [t for t in self.starts if time.monotonic() - t < 300] + [time.monotonic()]
        self.silent, self.since = 0, time.time()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**child_environment(), **self.environment, **self.marks()},
            )

    def ended(self) -> int | None:
        return self.process.poll() if self.process else -1

    def ports(self) -> list[int] | None:
        """Where it listens; None where the system does not say."""
        try:
            connections = (
                psutil.Process(self.process.pid).net_connections("inet") if self.process else []
            )
        except psutil.NoSuchProcess:
            return []
        except psutil.AccessDenied:
            return None
        return sorted({c.laddr.port for c in connections if c.status == psutil.CONN_LISTEN})

    def answers(self) -> bool:
        if self.health is None:
            return self.ports() != []
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with suppress(OSError), direct.open(self.health, timeout=5) as answer:
            return bool(answer.status == 200)
        return False

    def still_seconds(self, prefect_home: Path) -> float:
        """How long, up to this call, it has not computed, its log has not grown, and the database
        in `prefect_home` has not changed, which another server may be creating while this one waits
        for it."""
        computed = 0.0
        files = []
        with suppress(psutil.Error, AttributeError):  # it has ended, or is not started
            computed = sum(psutil.Process(self.process.pid).cpu_times()[:2])  # type: ignore[union-attr]
        for path in (self.log, *prefect_home.glob("prefect.db*")):
            with suppress(OSError):
                files.append((path.name, path.stat().st_size, path.stat().st_mtime_ns))
        seen = (computed, files)
        if self._moved[0] != seen:
            self._moved = (seen, time.monotonic())
        return time.monotonic() - self._moved[1]

    def restart(self) -> None:
        """Raises ServerError when it has been started too often of late."""
        if len(self.starts) >= RESTARTS:
            raise ServerError(f"the {self.name} has ended {RESTARTS} times; its log: {self.log}")
        self.stop(0)
        self.start()

    def stop(self, grace: float) -> None:
        if self.process:
            end_group(self.process, grace)


def start_in_turn(
    services: Sequence[Service],
    prefect_home: Path,
    stop: threading.Event | None = None,
    tries: int = 1,
) -> None:
    """Start one after the other, each when those before it are healthy; what ends meanwhile is
    started `tries` times in all. Raises ServerError: that was not enough, or one does nothing for
    STILL_SECONDS, or does not answer for START_SECONDS."""
    for number, newest in enumerate(services, 1):
        newest.start()
        began = time.monotonic()
        while not (stop and stop.is_set()):
            ended = [service for service in services[:number] if service.ended() is not None]
            if not ended and newest.answers():
                break
            for service in ended:
                if len(service.starts) >= tries:
                    why = (
                        f"the {service.name} ended with code {service.ended()}; "
                        f"{last_error(service.log)}"
                    )
                    raise ServerError(why)
                service.start()
            if newest.still_seconds(prefect_home) > STILL_SECONDS:
                still = f"has done nothing for {STILL_SECONDS:.0f} s"
                raise ServerError(f"the {newest.name} {still}; {last_error(newest.log)}")
            if time.monotonic() - began > START_SECONDS:
                late = f"has not answered at {newest.health} for {START_SECONDS:.0f} s"
                raise ServerError(f"the {newest.name} {late}; {last_error(newest.log)}")
            time.sleep(0.1)


def end_group(child: subprocess.Popen[Any], grace: float) -> None:
    """SIGTERM to a child that leads a group, which ends its own children; after the grace SIGKILL
    to the whole group."""
    if grace and child.poll() is None:
        child.terminate()
        with suppress(subprocess.TimeoutExpired):
            child.wait(grace)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def last_error(log: Path) -> str:
    """The last line of a log that names an error, else its last line, and where the log is."""
    lines = []
    with suppress(OSError):
        end = log.read_text(errors="replace")[-20_000:]
        lines = list(filter(None, map(str.strip, end.splitlines())))
    named = [
        line for line in lines if "error" in line.lower() and "//sqlalche.me/" not in line
    ] or lines
    return f"{named[-1][:300]} (log: {log})" if named else f"its log: {log}"
