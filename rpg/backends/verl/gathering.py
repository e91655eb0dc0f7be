"""Requests that verl makes one by one, answered together."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Request = TypeVar("Request")
Answer = TypeVar("Answer")
_SECONDS = 0.02
_PATIENT_SECONDS = 0.1
"""Requests that arrive within this time are answered together."""


class Gathering(Generic[Request, Answer]):
    """Has `work(requests)` answer what was asked meanwhile, in a thread of its own, so never twice
    at the same time.

    `patient`: not before no more come for a while, so that a busy machine hardly changes what is
    answered together.
    """

    def __init__(self, work: Callable[[list[Request]], Sequence[Answer]], patient: bool = False):
        self._work = work
        self._patient = patient
        self._waiting: list[tuple[Request, asyncio.Future[Answer]]] = []
        self._task: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(max_workers=1)

    async def ask(self, request: Request) -> Answer:
        """The answer to one request. Raises what `work` raised."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answer))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drain())
        return await answer

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            come = 0
            while come < len(self._waiting) and (self._patient or not come):
                come = len(self._waiting)
                await asyncio.sleep(_PATIENT_SECONDS if self._patient else _SECONDS)
            batch = self._waiting
            self._waiting = []
            requests = [request for request, _ in batch]
            try:
                found = await loop.run_in_executor(self._thread, self._work, requests)
            except Exception as error:  # noqa: BLE001 (whatever it is, it is the answer to these requests)
                for _, answer in batch:
                    answer.set_exception(error)
                continue
            for (_, answer), value in zip(batch, found, strict=True):
                answer.set_result(value)
