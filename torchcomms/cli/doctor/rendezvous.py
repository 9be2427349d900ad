"""The ranks of a launcher, talking through its store: before the engine is known to work."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from torchcomms.cli.doctor.finding import Host

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

_GRACE_SECONDS = 5.0


class LostFirst(Exception):
    """Rank 0 does not answer."""


class CameLate(Exception):
    """The others went on without this rank."""


@dataclass(frozen=True)
class Member:
    """A rank, as the others know it."""

    rank: int
    name: str
    """Of its host: the name, or CTRAN_HOST."""
    identity: str
    """The same for ranks that share memory, as the engine sees it (ctran/os/process.cpp)."""
    machine: str
    """The same for ranks that share a network stack."""

    @classmethod
    def here(cls, rank: int, host: Host) -> Member:
        boot = host.read("/proc/sys/kernel/random/boot_id") or ""
        machine = f"{boot}/{os.stat('/proc/self/ns/net').st_ino}"
        given = host.environ.get("CTRAN_HOST", "")
        return cls(rank, given or socket.gethostname(), f"{machine}/{given}", machine)


class Rendezvous:
    """Exchanges of which all ranks see the same result. Ranks that stay away are left out."""

    def __init__(self, store: Store, rank: int, size: int, seconds: float) -> None:
        self.store, self.rank, self.size = store, rank, size
        self.present = list(range(size))
        self._seconds = seconds

    def share(self, label: str, data: Any, seconds: float | None = None) -> dict[int, Any]:
        """What every rank said, by rank. Bounded: who does not say anything in time is absent,
        here and from then on.

        Raises:
            LostFirst: rank 0, which gathers, does not answer.
            CameLate: it has answered without waiting any longer for this rank.
        """
        seconds = self._seconds if seconds is None else seconds
        self.store.set(f"{label}/{self.rank}", json.dumps(data))
        if self.rank == 0:
            gathered = self._gather(label, time.monotonic() + seconds)
            self.store.set(f"{label}/all", json.dumps(gathered))
        else:
            try:
                self.store.wait([f"{label}/all"], timedelta(seconds=seconds + _GRACE_SECONDS))
            except Exception as error:
                raise LostFirst(f"rank 0 does not answer ({label})") from error
        answer = json.loads(self.store.get(f"{label}/all"))
        self.present = [int(rank) for rank in answer]
        if self.rank not in self.present:
            raise CameLate(
                f"rank {self.rank} came too late ({label}): the others went on without it"
            )
        return {int(rank): said for rank, said in answer.items()}

    def leave(self) -> None:
        """Rank 0, which may serve the store, goes last."""
        self.store.set(f"leave/{self.rank}", "")
        if self.rank == 0:
            for rank in self.present:
                with suppress(Exception):
                    self.store.wait([f"leave/{rank}"], timedelta(seconds=_GRACE_SECONDS))

    def _gather(self, label: str, deadline: float) -> dict[int, Any]:
        gathered = {}
        for rank in self.present:
            key = f"{label}/{rank}"
            left = max(0.001, deadline - time.monotonic())
            try:
                self.store.wait([key], timedelta(seconds=left))
            except Exception:
                continue
            gathered[rank] = json.loads(self.store.get(key))
        return gathered


Progress = Callable[[str], None]
