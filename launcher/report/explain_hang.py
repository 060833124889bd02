"""stub"""

from ..core.row import Row
from ..hangs.report import HangReport


def headline(report: HangReport) -> str:
    return f"nothing has moved for {report.quiet:.0f} s"


def rows(report: HangReport, *, whole: bool = False) -> list[Row]:
    return []
