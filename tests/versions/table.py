"""The sets of versions that are tried: each is what people combined at some time."""

from __future__ import annotations

from dataclasses import dataclass

PACKAGES = ("torch", "deepspeed", "transformers", "accelerate", "peft")
"""Those whose versions are told."""


@dataclass(frozen=True)
class Combination:
    """An interpreter, and what is installed for it.

    Attributes:
        name: the month of its time; its environment is `versions/NAME`.
        python: the interpreter's version, `3.12`; the command `python3.12` has to be there.
        pinned: as for `scripts/environment`, torch first.
        why: what differs does; empty where nothing differs.
    """

    name: str
    python: str
    pinned: tuple[str, ...]
    why: str = ""

    @property
    def environment(self) -> str:
        """Its name for `scripts/environment`."""
        return f"versions/{self.name}"


def _of(month: str, python: str, versions: str, *further: str, why: str = "") -> Combination:
    named = zip(PACKAGES, versions.split(), strict=True)
    return Combination(month, python, (*(f"{name}=={one}" for name, one in named), *further), why)


# These torches were compiled for numpy 1, and look for what newer setuptools have given up.
_OF_OLD = ("numpy<2", "setuptools<70")
COMBINATIONS = (
    _of("2024-06", "3.11", "2.3.1 0.14.4 4.41.2 0.31.0 0.11.1", *_OF_OLD),
    # 0.15.1 isn't installed by pip as it is: its setup imports torch, which a build hasn't got.
    _of("2024-09", "3.11", "2.4.1 0.15.0 4.44.2 0.34.2 0.12.0", *_OF_OLD),
    _of("2024-12", "3.12", "2.5.1 0.15.4 4.46.3 1.1.1 0.13.2", "setuptools<80"),
    _of("2025-04", "3.12", "2.6.0 0.16.5 4.51.3 1.6.0 0.15.2", "setuptools<80"),
    _of("2025-06", "3.13", "2.7.1 0.17.1 4.52.4 1.8.1 0.15.2", "setuptools<80"),
    _of("2025-09", "3.13", "2.8.0 0.17.6 4.56.2 1.10.1 0.17.1"),
    _of("2025-12", "3.13", "2.9.1 0.18.3 4.57.3 1.12.0 0.18.0"),
    _of(
        *("2026-03", "3.14", "2.10.0 0.18.8 5.3.0 1.13.0 0.18.1"),
        why="At stages 1 and 2 DeepSpeed 0.18.8 can't train over gloo, by whatever launcher: each "
        "step gathers the weights into a buffer that requires gradients, and gloo writes it in "
        "pieces. In 0.18.3 and 0.19.1 the buffer requires none.",
    ),
    _of("2026-06", "3.12", "2.12.0 0.19.1 5.10.2 1.14.0 0.19.1"),
    _of("2026-09", "3.13", "2.14.1 0.19.7 5.18.0 1.15.0 0.21.1"),
    _of("2026-11", "3.14", "2.15.0 0.19.8 5.24.0 1.15.0 0.21.2"),
)
