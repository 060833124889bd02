"""ms-swift; its reader adds what depends on its version.

Checked in its versions 2.2 to 4.6: swift/cli, swift/arguments.
"""

from .framework import FrameworkRow

MS_SWIFT = FrameworkRow(
    "ms-swift",
    ("swift",),
    "modelscope/ms-swift",
    "ms-swift",
    commands=("swift",),
    launching=("swift/cli/",),
    in_log=r"swift/(?:llm|trainers)/",
    on_trainer=True,
    program=r"(^|[./])swift[./]cli[./]",
    functions=frozenset({"sft_main", "pt_main", "rlhf_main"}),
    has_own_defaults=True,
)
