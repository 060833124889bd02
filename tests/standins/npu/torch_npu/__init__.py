"""A stand-in for torch_npu: Ascend devices that exist in the host's memory only.

torch's documentation of out-of-tree backends ("PrivateUse1") says what such a package has to
register. Of the environment it reads ASCEND_RT_VISIBLE_DEVICES, as the original does, and:

    STANDIN_NPU_DEVICES: number of devices; 8 by default.
    STANDIN_NPU_MEMORY: bytes of memory of each, as this process sees it; 32 GiB by default.
    STANDIN_NPU_FILES: folder of the driver's files, davinci_manager and davinci0 to davinci7, of
        which a process holds those of the devices that it has a context on; none by default.
    STANDIN_HCCP: that HCCL has a helper process, which holds a device. It `ends` with the process
        that it helps, or `lingers` until another one has been refused the device.
"""

import os
import subprocess
import sys
import tempfile
from functools import cache

import torch

torch.utils.rename_privateuse1_backend("npu")

from torch_npu import _C, npu  # noqa: E402

__version__ = "2.13.0"

torch._register_device_module("npu", npu)
sys.modules.setdefault("torch.npu", npu)
torch.utils.generate_methods_for_privateuse1_backend(
    unsupported_dtype=[torch.quint8, torch.quint4x2, torch.quint2x4, torch.qint32, torch.qint8]
)


@cache
def _begin_hccp(device):
    """Starts HCCP, which belongs to the driver and not to the job, once for each device.

    Raises:
        RuntimeError: the one of another process holds the device.
    """
    visible = os.environ.get("ASCEND_RT_VISIBLE_DEVICES", "")
    number = visible.split(",")[device] if visible else device
    lock = f"{tempfile.gettempdir()}/hccp-{number}"
    refused = f"{tempfile.gettempdir()}/hccp-refused"
    helps = f"tail --pid={os.getpid()} -f /dev/null"
    if os.environ["STANDIN_HCCP"] == "lingers":
        helps += f"; timeout 900 sh -c 'until [ -e {refused} ]; do sleep 0.1; done'"
    told = f"echo && exec >/dev/null && {helps}"
    helper = subprocess.Popen(
        ["flock", "--nonblock", lock, "sh", "-c", told],
        env={"PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    if not helper.stdout.readline():
        open(refused, "w").close()
        raise RuntimeError(
            "create_config:build/CMakeFiles/torch_npu.dir/compiler_depend.ts:102 HCCL function "
            "error: hcclCommInitRootInfoConfig(numRanks, &rootInfo, rank, config, "
            "&(comm->hcclComm_)), error code is 7\n"
            f"EJ0001: [PID: {os.getpid()}] Failed to initialize the HCCP process. Reason: Maybe "
            "the last training process is running.\n        Solution: Wait for 10s after killing "
            "the last training process and try again."
        )


def _hccl(options, _group_options=None):
    from torch.distributed import ProcessGroupGloo

    if "STANDIN_HCCP" in os.environ:
        _begin_hccp(int(os.environ["LOCAL_RANK"]))

    arguments = options.store, options.group_rank, options.group_size, options.timeout
    return _C.hccl(ProcessGroupGloo(*arguments), options.group_rank, options.group_size)


if torch.distributed.is_available():
    torch.distributed.Backend.register_backend("hccl", _hccl, extended_api=True, devices=["npu"])


def npu_apply_adam_w(
    beta1_power, beta2_power, lr, weight_decay, beta1, beta2, epsilon, grad, max_grad_norm,
    amsgrad, maximize, out,
):  # fmt: skip
    """AdamW's step, in place, as the operator of CANN defines it (ApplyAdamW)."""
    assert max_grad_norm is None
    assert not amsgrad
    assert not maximize
    var, m, v = out
    m.mul_(beta1).add_(grad, alpha=1 - beta1)
    v.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    var.mul_(1 - lr * weight_decay)
    scale = (1 - beta2_power * beta2) ** 0.5
    var.addcdiv_(m / (1 - beta1_power * beta1), (v.sqrt() / scale).add_(epsilon), value=-lr)
    return var, m, v


def npu_rms_norm(tensor, gamma, epsilon=1e-6):
    """What RMSNorm makes of a tensor, and one over the root mean square of its last dimension."""
    exact = tensor.float()
    scale = torch.rsqrt(exact.pow(2).mean(-1, keepdim=True) + epsilon)
    return (exact * scale).to(tensor.dtype) * gamma, scale


def npu_swiglu(tensor, dim=-1):
    """The first half, through SiLU, times the second."""
    gate, up = tensor.chunk(2, dim)
    return torch.nn.functional.silu(gate) * up


def npu_rotary_mul(tensor, cosine, sine):
    """Rotary positions, the two parts of each pair half a head apart."""
    first, second = tensor.chunk(2, -1)
    return tensor * cosine + torch.cat((-second, first), -1) * sine


def npu_format_cast(tensor, _format):
    """The tensor in another private format of the device, which has one alone here."""
    return tensor


def get_npu_format(_tensor):
    """The number of the plain format, ACL_FORMAT_ND."""
    return 2


def npu_fusion_attention(*_args, **_kwargs):
    """CANN's fused attention.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError("the stand-in has no fused attention; use sdpa or eager")


def _autoload():
    """Called by `import torch`, through the entry point "torch.backends"."""
