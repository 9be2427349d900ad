"""Programs: what the user writes in a `with`, and the plan that it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from mscclpp.explanation import explain
from mscclpp.language.checks import check_pairs
from mscclpp.language.collectives import Collective
from mscclpp.language.passes import Passes
from mscclpp.language.plan import Plan
from mscclpp.language.record import Record, close_record, open_record
from mscclpp.language.source import Call
from mscclpp.language.thread_block_group import MOST_BLOCKS, MOST_THREADS
from mscclpp.language.utils import AlgoSpec, ReplicationPolicy
from mscclpp.language.writer import write
from mscclpp.proof import Report, lower_unproved, prove

if TYPE_CHECKING:
    from torchcomms.plan import Timeline

__all__ = ["AlgoSpec", "CollectiveProgram", "ReplicationPolicy"]


class CollectiveProgram:
    """A collective, written as what each thread block of each rank does.

        with CollectiveProgram("mine", AllGather(2, 1, False), 2) as program:
            ...  # ranks, channels, and what is called on them
        print(program.to_json())

    Args:
        name: of the algorithm.
        collective: what it computes, and the sizes of its buffers in chunks.
        num_ranks: the number of ranks.
        instances: copies of every thread block, among which every chunk is divided.
        protocol: "Simple", or "LL" for one whose scratch is packets.
        instr_fusion: whether neighbouring operations become one where one instruction does both.
        auto_sync: whether the threads of a block meet between operations of that block that reach
            the same chunk. Between thread blocks, and between ranks, the program says what waits
            for what.
        replication_policy: what `instances` means.
        reuse_resources: whether executors may take a scratch buffer that programs share.
        num_threads_per_block: threads of a thread block, on GPUs.
        use_double_scratch_buffer: whether executions take one half of the scratch and the other in
            turns.
        buffer_alignment: bytes.
        min_message_size, max_message_size: bytes of the messages that the program is for.

    Raises:
        ProgramError: the program is wrong. Its message begins with the line that is.
    """

    def __init__(
        self,
        name: str,
        collective: Collective,
        num_ranks: int,
        instances: int = 1,
        protocol: str = "Simple",
        instr_fusion: bool = True,
        auto_sync: bool = True,
        replication_policy: ReplicationPolicy = ReplicationPolicy.interleaved,
        reuse_resources: bool = False,
        num_threads_per_block: int = 1024,
        use_double_scratch_buffer: bool = False,
        buffer_alignment: int = 16,
        min_message_size: int = 0,
        max_message_size: int = 2**64 - 1,
    ) -> None:
        call = Call("CollectiveProgram")
        if not isinstance(name, str) or not name:
            call.fail(f"name must be a text, not {name!r}")
        if not isinstance(collective, Collective):
            call.fail(f"collective must be one of mscclpp.language.collectives, not {collective!r}")
        if collective.num_ranks != num_ranks:
            call.fail(
                f"the collective is one of {collective.num_ranks} ranks, not of {num_ranks!r}"
            )
        for what, number in (
            ("instances", instances),
            ("num_threads_per_block", num_threads_per_block),
            ("buffer_alignment", buffer_alignment),
        ):
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                call.fail(f"{what} must be a positive integer, not {number!r}")
        if instances > MOST_BLOCKS:
            call.fail(f"{instances} instances: a rank has at most {MOST_BLOCKS} thread blocks")
        if num_threads_per_block > MOST_THREADS:
            call.fail(f"{num_threads_per_block} threads: a block has at most {MOST_THREADS}")
        if protocol not in ("Simple", "LL"):
            call.fail(f"protocol must be 'Simple' or 'LL', not {protocol!r}")
        if not isinstance(replication_policy, ReplicationPolicy):
            call.fail(f"replication_policy must be a ReplicationPolicy, not {replication_policy!r}")
        for what, size in (
            ("min_message_size", min_message_size),
            ("max_message_size", max_message_size),
        ):
            if isinstance(size, bool) or not isinstance(size, int):
                call.fail(f"{what} must be a number of bytes, not {size!r}")
        if not 0 <= min_message_size <= max_message_size < 2**64:
            call.fail(f"no message has {min_message_size} to {max_message_size} bytes")
        self.name = name
        self.collective = collective
        self.num_ranks = num_ranks
        self.instances = instances
        self.protocol = protocol
        self.instr_fusion = call.flag("instr_fusion", instr_fusion)
        self.auto_sync = call.flag("auto_sync", auto_sync)
        self.replication_policy = replication_policy
        self.reuse_resources = call.flag("reuse_resources", reuse_resources)
        self.num_threads_per_block = num_threads_per_block
        self.use_double_scratch_buffer = call.flag(
            "use_double_scratch_buffer", use_double_scratch_buffer
        )
        self.buffer_alignment = buffer_alignment
        self.min_message_size = min_message_size
        self.max_message_size = max_message_size
        self.location = call.location
        chunks = (collective.input_chunks, collective.output_chunks)
        self._record = Record(name, num_ranks, chunks, call.location)
        self._record.compile = self.plan

    @classmethod
    def from_spec(cls, spec: AlgoSpec) -> CollectiveProgram:
        """The program of a specification, still empty."""
        if not isinstance(spec, AlgoSpec):
            Call("CollectiveProgram.from_spec").fail(f"spec must be an AlgoSpec, not {spec!r}")
        return cls(
            spec.name,
            spec.collective,
            spec.world_size,
            instances=spec.instances,
            protocol=spec.protocol,
            instr_fusion=spec.instr_fusion,
            auto_sync=spec.auto_sync,
            replication_policy=spec.replication_policy,
            reuse_resources=spec.reuse_resources,
            num_threads_per_block=spec.num_threads_per_block,
            use_double_scratch_buffer=spec.use_double_scratch_buffer,
            buffer_alignment=spec.buffer_alignment,
            min_message_size=spec.min_message_size,
            max_message_size=spec.max_message_size,
        )

    def __enter__(self) -> CollectiveProgram:
        open_record(Call("CollectiveProgram"), self._record)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        close_record()

    def plan(self, *, instances: int | None = None, instr_fusion: bool | None = None) -> Plan:
        """The execution plan: what was written, checked, fused, synchronised and replicated.

        It is made anew from what was written, so it is the same however often it is asked for.

        Args:
            instances, instr_fusion: instead of the program's.
        """
        passes = self.passes
        if instances is not None:
            passes = replace(passes, instances=instances)
        if instr_fusion is not None:
            passes = replace(passes, instr_fusion=instr_fusion)
        return passes.applied(self.written())

    @property
    def passes(self) -> Passes:
        """What makes `plan` of `written`."""
        return Passes(self.instances, self.instr_fusion, self.auto_sync, self.replication_policy)

    def to_json(self, indent: int | None = 2, *, locations: bool = False) -> str:
        """The execution plan as JSON (`mscclpp.language.write`)."""
        return write(self.plan(), indent, locations=locations)

    def verify(self) -> Report:
        """Proves the program right, or says where it is not.

        Raises:
            CannotVerify: it says what the verifier does not know yet.
            ProgramError: it makes no sense.
        """
        return prove(self.written(), self.passes, self.location)

    def simulate(
        self, bytes: int = 1 << 20, machine: Mapping[str, Any] | None = None, *, units: int = 1
    ) -> Timeline:
        """Runs the program in virtual time. Needs torchcomms, and so PyTorch.

        Args:
            bytes: of what a rank has for one other, or for all: input of an all-gather, output of a
                reduce-scatter, either of an all-reduce, a part of an all-to-all.
            machine: what it runs on (docs/plans.md); default: ranks of one host.
            units: pieces into which the data is cut, and executed one after another.
        """
        from torchcomms.plan import Plan

        lowered = lower_unproved(self.plan(), self.location)
        return Plan(lowered).simulate(bytes, machine, units=units)

    def draw(
        self, bytes: int = 1 << 20, machine: Mapping[str, Any] | None = None, *, units: int = 1
    ) -> str:
        """What `simulate` gives, as SVG: thread blocks downwards, time to the right."""
        return self.simulate(bytes, machine, units=units).svg()

    def explain(self) -> str:
        """What is proved about the program, and what each thread block does, with the lines."""
        return explain(self.plan(), self.verify())

    def validate_signal_wait_pairing(self) -> None:
        """Raises ProgramError if signals and waits of a connection differ in number."""
        check_pairs(self.written())

    def post_process_operations(self) -> None:
        """Raises what `plan` raises. It changes nothing, and need not be called."""
        self.plan()

    def written(self) -> Plan:
        """What was written, as it was: no plan for executors yet."""
        settings: dict[str, Any] = {
            "collective": self.collective.name,
            "protocol": self.protocol,
            "inplace": self.collective.inplace,
            "reuse_resources": self.reuse_resources,
            "num_threads_per_block": self.num_threads_per_block,
            "use_double_scratch_buffer": self.use_double_scratch_buffer,
            "buffer_alignment": self.buffer_alignment,
            "min_message_size": self.min_message_size,
            "max_message_size": self.max_message_size,
        }
        return replace(self._record.plan(), **settings)
