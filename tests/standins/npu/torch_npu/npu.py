"""`torch.npu`: devices, memory, streams and generators."""

import contextlib
import functools
import sys
from types import SimpleNamespace

import torch

from torch_npu import _C

random = sys.modules[__name__]
BFloat16Tensor = functools.partial(torch.tensor, dtype=torch.bfloat16, device="npu")
ByteTensor = functools.partial(torch.tensor, dtype=torch.uint8, device="npu")
DoubleTensor = functools.partial(torch.tensor, dtype=torch.float64, device="npu")
FloatTensor = functools.partial(torch.tensor, dtype=torch.float32, device="npu")
HalfTensor = functools.partial(torch.tensor, dtype=torch.float16, device="npu")
IntTensor = functools.partial(torch.tensor, dtype=torch.int32, device="npu")
LongTensor = functools.partial(torch.tensor, dtype=torch.int64, device="npu")
OutOfMemoryError = torch.OutOfMemoryError


def init():
    """Nothing is left to initialize."""


_lazy_init = init


def is_initialized():
    return _C.has_context()


def _lazy_call(callback):
    callback()


def _is_in_bad_fork():
    return False


def is_available():
    return _C.device_count() > 0


device_count = _C.device_count
current_device = _C.current_device


def _index(device):
    if device is None:
        return _C.current_device()
    if isinstance(device, int):
        return _C.current_device() if device < 0 else device
    index = torch.device(device).index
    return _C.current_device() if index is None else index


def set_device(device):
    _C.set_device(_index(device))


class device(contextlib.AbstractContextManager):  # noqa: N801 - its name in torch
    """Another current device for a while."""

    def __init__(self, wanted):
        self.idx = _index(wanted)

    def __enter__(self):
        self.before = _C.current_device()
        _C.set_device(self.idx)

    def __exit__(self, *_):
        _C.set_device(self.before)


class device_of(device):  # noqa: N801
    """The device of a tensor, for a while."""

    def __init__(self, tensor):
        super().__init__(tensor.get_device() if tensor.device.type == "npu" else None)


def get_device_name(_device=None):
    return "Ascend910B4"


def get_device_properties(_device=None):
    return SimpleNamespace(
        name=get_device_name(), total_memory=_C.capacity(), multi_processor_count=20,
        major=0, minor=0, cube_core_num=20, vector_core_num=40,
    )  # fmt: skip


def get_device_capability(_device=None):
    return None


def get_soc_version():
    return 224


def can_device_access_peer(_device, _peer):
    return True


def synchronize(_device=None):
    """Every kernel has ended when its call returns."""


def is_bf16_supported(**_):
    return True


def get_amp_supported_dtype():
    return [torch.float16, torch.bfloat16]


def set_compile_mode(**_):
    """There is one mode."""


def set_option(_options):
    """There are none."""


def config_allow(*_):
    """There is nothing to allow."""


# Memory


def memory_allocated(device=None):
    return _C.memory(_index(device))[0]


def max_memory_allocated(device=None):
    return _C.memory(_index(device))[1]


def memory_reserved(device=None):
    return _C.memory(_index(device))[2]


def max_memory_reserved(device=None):
    return _C.memory(_index(device))[3]


memory_cached, max_memory_cached = memory_reserved, max_memory_reserved


def reset_peak_memory_stats(device=None):
    _C.reset_peak(_index(device))


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def reset_accumulated_memory_stats(_device=None):
    """Nothing is accumulated."""


def empty_cache():
    for index in range(device_count()):
        _C.empty_cache(index)


def memory_stats(device=None):
    allocated, peak, reserved, most = _C.memory(_index(device))
    return {
        "allocated_bytes.all.current": allocated,
        "allocated_bytes.all.peak": peak,
        "active_bytes.all.current": allocated,
        "active_bytes.all.peak": peak,
        "reserved_bytes.all.current": reserved,
        "reserved_bytes.all.peak": most,
        "num_ooms": 0,
        "num_alloc_retries": 0,
    }


def memory_summary(device=None, abbreviated=False):
    del abbreviated
    return "\n".join(f"{name}: {value}" for name, value in memory_stats(device).items())


def mem_get_info(device=None):
    return _C.capacity() - _C.memory(_index(device))[2], _C.capacity()


def set_per_process_memory_fraction(_fraction, _device=None):
    """The capacity is the fraction."""


def ipc_collect():
    """Nothing is shared."""


# Generators

default_generators = tuple(_C.default_generator(index) for index in range(device_count()))


def get_rng_state(device="npu"):
    return default_generators[_index(device)].get_state()


def set_rng_state(state, device="npu"):
    default_generators[_index(device)].set_state(state)


def get_rng_state_all():
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state_all(states):
    for index, state in enumerate(states):
        set_rng_state(state, index)


def manual_seed(seed):
    default_generators[_C.current_device()].manual_seed(seed)


def manual_seed_all(seed):
    for generator in default_generators:
        generator.manual_seed(seed)


def seed():
    return default_generators[_C.current_device()].seed()


def seed_all():
    for generator in default_generators:
        generator.seed()


def initial_seed():
    return default_generators[_C.current_device()].initial_seed()


# Streams and events: there is one stream, and what is in it is past.


class Stream(torch.Stream):
    """The one stream of a device."""

    def __new__(cls, device=None, priority=0, **_):
        return super().__new__(cls, device=torch.device("npu", _index(device)), priority=priority)

    @property
    def npu_stream(self):
        return self.stream_id


class Event(torch.Event):
    """A moment in the stream."""

    def __new__(cls, enable_timing=False, **_):
        return super().__new__(cls, device="npu", enable_timing=enable_timing)


def current_stream(device=None):
    return Stream(device)


default_stream = current_stream


def set_stream(_stream):
    """There is one."""


@contextlib.contextmanager
def stream(_stream):
    yield


class amp:  # noqa: N801 - torch.npu.amp
    """Mixed precision, as torch.amp has it for any device."""

    GradScaler = torch.amp.GradScaler

    @staticmethod
    def autocast(enabled=True, dtype=torch.float16, cache_enabled=True):
        return torch.autocast("npu", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)
