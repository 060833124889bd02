"""stub"""

from collections.abc import Sequence

from .report import HangKind, HangReport
from .standing import Standing


def attributed(
    now: Sequence[Standing], quiet: float, limit: float, earlier: HangReport | None = None
) -> HangReport:
    return HangReport(HangKind.UNKNOWN, (), (), None, tuple(now), False, quiet)
