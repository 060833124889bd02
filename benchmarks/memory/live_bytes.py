"""Counts the bytes of all live tensors, and their peak.

torch's MemTracker finds the same numbers. This only adds them up, and is several times faster.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_resize = torch.UntypedStorage.resize_
_PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.bmm.default)


class LiveBytes(TorchDispatchMode):
    """Sees every operation's results, and the resizing by which FSDP2 frees and allocates.

    Attributes:
        now: live bytes.
        peak: the most so far; may be reset.
    """

    def __init__(self) -> None:
        """Starts at zero."""
        super().__init__()
        self.now = self.peak = 0
        self._sizes: dict[int, int] = {}

    def add(self, tensor: torch.Tensor) -> None:
        """Counts a tensor's storage, once."""
        if isinstance(tensor, DTensor):
            tensor = tensor.to_local()
        storage = tensor.untyped_storage()
        if storage._cdata not in self._sizes:
            self._sizes[storage._cdata] = 0
            weakref.finalize(storage, self._gone, storage._cdata)
        self._change(storage)

    def _change(self, storage: torch.UntypedStorage) -> None:
        self.now += storage.nbytes() - self._sizes[storage._cdata]
        self._sizes[storage._cdata] = storage.nbytes()
        self.peak = max(self.peak, self.now)

    def _gone(self, key: int) -> None:
        self.now -= self._sizes.pop(key)

    def __enter__(self) -> LiveBytes:
        """Starts counting."""

        def resize_(storage: torch.UntypedStorage, size: int) -> None:
            _resize(storage, size)
            if storage._cdata in self._sizes:
                self._change(storage)

        torch.UntypedStorage.resize_ = resize_  # type: ignore[assignment,method-assign]
        super().__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        """Stops counting."""
        torch.UntypedStorage.resize_ = _resize  # type: ignore[method-assign]
        super().__exit__(*raised)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs an operation and counts its results; of a DTensor, those of its parts."""
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        results = func(*args, **(kwargs or {}))
        for result in tree_leaves(results):
            if isinstance(result, torch.Tensor):
                self.add(result)
        return results


class ZeroProducts(TorchDispatchMode):
    """Replaces products of matrices, which take most of the time, by zeros of equal size."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs an operation, but replaces products by zeros."""
        if func in _PRODUCTS and not any(issubclass(kind, DTensor) for kind in types):
            first, second = args
            return first.new_zeros(*first.shape[:-1], second.shape[-1])
        return func(*args, **(kwargs or {}))
