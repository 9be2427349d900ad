"""The passes between what a program says and what executors take."""

from __future__ import annotations

from dataclasses import dataclass

from mscclpp.language.checks import check_pairs, check_switch_chunks
from mscclpp.language.fusion import fused
from mscclpp.language.limits import divided
from mscclpp.language.plan import Plan, rewritten
from mscclpp.language.replication import replicated
from mscclpp.language.syncs import syncs
from mscclpp.language.utils import ReplicationPolicy


@dataclass(frozen=True)
class Passes:
    """What passes go by; `CollectiveProgram` says what each setting means."""

    instances: int
    instr_fusion: bool
    auto_sync: bool
    replication_policy: ReplicationPolicy

    def applied(self, plan: Plan) -> Plan:
        """The plan for executors: checked, fused, synchronised and replicated."""
        check_switch_chunks(plan)
        check_pairs(plan)
        plan = rewritten(plan, divided)
        if self.instr_fusion:
            plan = rewritten(plan, fused)
        plan = rewritten(plan, syncs(self.auto_sync))
        if self.replication_policy is ReplicationPolicy.interleaved:
            plan = replicated(plan, self.instances)
        return plan
