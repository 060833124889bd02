"""The folders of this process's cgroups, with the limits of its job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def folders(controller: str, root: Path = ROOT, membership: Path = MEMBERSHIP) -> Iterator[Path]:
    """The folders of this process's cgroups and their parents, of both versions.

    Schedulers limit jobs, steps or tasks, and all limits in the hierarchy apply
    (https://docs.kernel.org/admin-guide/cgroup-v2.html). A container sees its own as the root.
    """
    paths, lines = {(root, Path("/")), (root / controller, Path("/"))}, list[str]()
    with suppress(OSError, UnicodeDecodeError):
        lines = membership.read_text(encoding="utf-8").splitlines()
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if not controllers:
            paths.add((root, Path(path)))
        elif controller in controllers.split(","):
            paths |= {(root / name, Path(path)) for name in (controller, controllers)}
    for mount, group in sorted(paths):
        for folder in (group, *group.parents):
            yield mount / folder.relative_to(folder.anchor)
