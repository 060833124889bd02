"""A training, to be launched or planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.hardware import Hardware
from ..core.request import LaunchRequest
from ..core.settings import Setting
from ..core.workload import Known, Workload

if TYPE_CHECKING:
    from ..catalogue.entry import KnownFailure


@dataclass(frozen=True, slots=True)
class Training:
    """A training, as described by the command line and the machine.

    Attributes:
        site_entries: known failures of a cluster's own.
        wanted: settings that `--preset` and `--set` ask for.
    """

    request: LaunchRequest
    hardware: Hardware
    site_entries: Sequence[KnownFailure]
    wanted: Mapping[Setting, Known]

    def workload(self, request: LaunchRequest) -> Workload:
        """The workload, given the number of workers of all nodes."""
        from ..planning import named_presets
        from ..workload.read_workload import read_workload

        named_presets.check(self.wanted, self.hardware)
        workload = named_presets.on_device(read_workload(request), self.hardware)
        return named_presets.with_wanted(workload, self.wanted)
