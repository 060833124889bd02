"""Creates models without weights, on the meta device, for a process that only answers a query."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

from ..evidence.worker_messages import EndOfQueryError
from ..workload.models.on_meta import without_weights
from .loading import PARTITIONING, configuration_of, dtype_of


def load(wrapped: Any, kind: Any, args: Any, kwargs: Any, *, is_stored: bool) -> Any:
    """Creates a model on the meta device instead of loading its weights.

    Raises:
        EndOfQueryError: the model can't be created on the meta device.
    """
    import torch

    if not is_stored and torch.get_default_device().type == "meta":  # part of another model
        return wrapped(*args, **kwargs)
    try:
        config = configuration_of(kind, args, kwargs)
        with _default_dtype(dtype_of(config, kwargs, is_stored=is_stored)):
            model = without_weights(kind, config)
    except Exception as error:
        what = f"{kind.__name__} can't be created without its weights"
        raise EndOfQueryError(f"{what}: {type(error).__name__}: {error}") from error
    quantization = kwargs.get("quantization_config") or getattr(config, "quantization_config", None)
    if is_stored and quantization:
        _quantize(model, quantization)
    return (model.eval(), {}) if kwargs.get("output_loading_info") else model.eval()


def build_unloaded(kind: Any) -> None:
    """Creates models of all classes derived from now on without weights."""
    defined = vars(kind).get("__init_subclass__")

    def derive(derived: Any, /, **kwargs: Any) -> None:
        inherited = super(kind, derived).__init_subclass__
        (inherited if defined is None else defined.__get__(None, derived))(**kwargs)
        if "__init__" in vars(derived):
            derived.__init__ = _on_meta(derived.__init__)

    kind.__init_subclass__ = classmethod(derive)


def _on_meta(make: Any) -> Any:
    """Runs a model's `__init__` on the meta device; unchanged if its code needs values.

    DeepSpeed's `zero.Init` partitions weights created within it, which needs their values.
    """

    @functools.wraps(make)
    def begin(self: Any, *args: Any, **kwargs: Any) -> None:
        import torch

        is_partitioning = getattr(sys.modules.get(PARTITIONING), "zero_init_context", 0)
        if not is_partitioning and torch.get_default_device().type != "meta":
            with suppress(Exception), torch.device("meta"):
                make(self, *args, **kwargs)
                return
        make(self, *args, **kwargs)

    return begin


@contextmanager
def _default_dtype(dtype: Any) -> Iterator[None]:
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype or before)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _quantize(model: Any, quantization: Any) -> None:
    """Marks the weights that bitsandbytes would store in 4 bits, the only kind supported.

    Raises:
        EndOfQueryError: the quantization is of another kind.
    """
    import torch

    options = quantization if isinstance(quantization, Mapping) else vars(quantization)
    is_4bit = options.get("load_in_4bit") or options.get("_load_in_4bit")
    is_8bit = options.get("load_in_8bit") or options.get("_load_in_8bit")
    if not (is_4bit or is_8bit):
        raise EndOfQueryError("its quantized weights can't be created without reading them")
    head = model.get_output_embeddings()
    for module in model.modules():
        if isinstance(module, torch.nn.Linear) and module is not head:
            weight = module.weight.detach()
            weight = weight if is_4bit else weight.to(torch.int8)
            module.weight = torch.nn.Parameter(weight, requires_grad=False)
            if is_4bit:
                module.weight.quant_state = SimpleNamespace(shape=weight.shape)
    name = "is_loaded_in_4bit" if is_4bit else "is_loaded_in_8bit"
    setattr(model, name, True)


def resize(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
    """Resizes embeddings without computing the new rows from the others, which have no values."""
    is_known = "mean_resizing" in inspect.signature(wrapped).parameters
    return wrapped(*args, **{**kwargs, **({"mean_resizing": False} if is_known else {})})
