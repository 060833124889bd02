"""Private names in other packages that safe-launch uses.

Names with an underscore, or without documentation, may vanish in any release. So each is here, with
the consequences of its absence; code that uses it prints them in a line and continues, if possible.
`scripts/versions` finds out which of the versions that it tries have them. Names that are only
recognized, in tracebacks and on stacks, aren't here: if they vanish, nothing is recognized.
"""

from __future__ import annotations

import functools
import importlib
from dataclasses import dataclass
from typing import Any

from .errors import LaunchError


@dataclass(frozen=True, slots=True)
class PrivateName:
    """A private name of another package.

    Attributes:
        package: the distribution that has it, or `python`.
        versions: the range of supported versions that have it (PEP 440).
        path: its path in the module, as in `Trainer._inner_training_loop`.
        without: the consequences of its absence, a sentence without its end.
    """

    package: str
    versions: str
    module: str
    path: str
    without: str

    @property
    def attribute(self) -> str:
        """The last part of its path."""
        return self.path.rpartition(".")[2]

    @property
    def sentence(self) -> str:
        """The message if it is missing."""
        return f"this {self.package} has no {self.module}.{self.path}: {self.without}"

    def of(self, owner: Any) -> Any:
        """Its value as an attribute of a module, class or object.

        Raises:
            MissingNameError: it isn't there.
        """
        try:
            return getattr(owner, self.attribute)
        except AttributeError:
            raise MissingNameError(self) from None

    def imported(self) -> Any:
        """Its value in its module, which is imported.

        Raises:
            MissingNameError: it isn't there.
        """
        try:
            module = importlib.import_module(self.module)
            return functools.reduce(getattr, self.path.split("."), module)
        except (ImportError, AttributeError):
            raise MissingNameError(self) from None


class MissingNameError(LaunchError):
    """A name isn't there any more, or not yet; the problem is its sentence."""

    def __init__(self, name: PrivateName) -> None:
        super().__init__(name.sentence)


_ELASTIC = "torch.distributed.elastic.multiprocessing.api"
_ACCELERATE = ("accelerate.commands.launch", "its configuration files can't be read in full")
_DDP = ("torch", "", "torch.nn.parallel.distributed")
_EARLY = "gradients that DDP has reduced too early aren't noticed"
_STACKS = "torch isn't queried for what hanging ranks wait for"

LOGS_SPECS = PrivateName(
    *("torch", ">=2.3", _ELASTIC, "LogsSpecs"),
    "workers can't be started with `--start-method=spawn`",
)
LOGS_DEST = PrivateName("torch", ">=2.3", _ELASTIC, "LogsDest", LOGS_SPECS.without)
NUMA_OPTIONS = PrivateName(
    *("torch", ">=2.9", "torch.numa.binding", "NumaOptions"), "there is no `--numa-binding`"
)
AFFINITY_MODE = PrivateName(
    *("torch", ">=2.9", "torch.numa.binding", "AffinityMode"), NUMA_OPTIONS.without
)
WORKER_SERVER = PrivateName(
    *("torch", ">=2.4", "torch._C._distributed_c10d", "_WorkerServer"), _STACKS
)
LOG_LEVEL = PrivateName("torch", "", "libc10.so", "FLAGS_caffe2_log_level", _STACKS)
GRAPH_TASK = PrivateName("torch", "", "torch._C", "_current_graph_task_id", _EARLY)
ENGINE = PrivateName("torch", "", "torch.autograd", "Variable._execution_engine", _EARLY)
SKIP_CODE = PrivateName(
    *("torch", "", "torch._dynamo.eval_frame", "skip_code"),
    "torch.compile compiles the marks of each step as well, which takes time",
)
COMPILED = PrivateName(
    *("torch", "", "torch._dynamo.eval_frame", "OptimizedModule"),
    "batches and evaluations of models that torch.compile wraps aren't inspected",
)
SYNCS = PrivateName(*_DDP, "DistributedDataParallel.require_backward_grad_sync", _EARLY)
IGNORED = PrivateName(*_DDP, "DistributedDataParallel.parameters_to_ignore", _EARLY)
SYNC_BUFFERS = PrivateName(
    *(*_DDP, "DistributedDataParallel._sync_buffers"),
    "DDP's exchange of buffers counts as a rank's own time",
)
FSDP_BEGINS = PrivateName(
    *("torch", ">=2.6", "torch.distributed.fsdp._fully_shard._fsdp_state"),
    *("FSDPState._lazy_init", "what FSDP2 has in force isn't observed"),
)
INITIAL_STATE = PrivateName(
    *("torch", "", "torch.distributed.checkpoint.state_dict", "_init_optim_state"),
    "a step that torch makes to have an optimizer's states counts as the training's",
)
DIVISOR = PrivateName(
    *("torch", "", "torch._C._functions", "DivBackward0._saved_other"),
    "a loss that loop and engine both divide isn't noticed",
)
REDUCTION = PrivateName(
    *("torch", "", "torch._C._functions", "NllLossBackward0._saved_reduction"),
    "means that a plain loop adds up aren't noticed",
)
TARGET = PrivateName(
    *("torch", "", "torch._C._functions", "NllLossBackward0._saved_target"),
    "labels that don't fit the inputs aren't noticed in a script's loss",
)
IGNORED_LABEL = PrivateName(
    *("torch", "", "torch._C._functions", "NllLossBackward0._saved_ignore_index"), TARGET.without
)
NORMALIZED = PrivateName(
    *("torch", "", "torch._C._functions", "SoftmaxBackward0._saved_dim"),
    "a softmax over the samples of a batch isn't noticed",
)
METADATA = PrivateName(
    *("torch", ">=2.6", "torch.autograd.graph", "Node._input_metadata"),
    "losses that broadcast an output and its target aren't noticed, nor padding without a mask",
)
OPERAND = PrivateName(
    *("torch", "", "torch._C._functions", "MmBackward0._saved_mat2"),
    "features that are gathered without gradients aren't noticed",
)
FACTOR = PrivateName(
    *("torch", "", "torch._C._functions", "MulBackward0._saved_other"),
    "features that are gathered without gradients aren't noticed",
)
VERSION = PrivateName(
    *("torch", "", "torch", "Tensor._version"),
    "gradients that are clipped before a step's last backward pass aren't noticed, nor casts "
    "that autocast keeps over several steps, nor state dicts that are misused",
)
TRANSIENT = PrivateName(
    *("torch", "", "torch.nn.modules.module", "Module._non_persistent_buffers_set"),
    "buffers that `to_empty` leaves uninitialized aren't noticed",
)
SCALE = PrivateName(
    *("torch", "", "torch.amp.grad_scaler", "GradScaler._scale"),
    "steps that a scaler skips aren't noticed",
)
LOADER_ITERATOR = PrivateName(
    *("torch", "", "torch.utils.data.dataloader", "_BaseDataLoaderIter"),
    "a batch that comes again and again isn't noticed, nor a seed that is set anew, nor decisions "
    "by one rank's part of an evaluation",
)
FETCHER = PrivateName(
    *("torch", "", "torch.utils.data.dataloader", "_DatasetKind"),
    "worker processes that draw the same values in each epoch aren't noticed",
)
FAKE_STORE = PrivateName(
    *("torch", "", "torch.testing._internal.distributed.fake_pg", "FakeStore"),
    "`plan --ask` ends where the ranks meet",
)
CHECKPOINT_FUNCTION = PrivateName(
    *("torch", "", "torch.utils.checkpoint", "CheckpointFunction"),
    "options of non-reentrant checkpointing may be left where it is made reentrant",
)
DEFAULT_DEVICE = PrivateName(
    *("torch", "", "torch.utils._device", "CURRENT_DEVICE"),
    "the default device is read with torch's getter, which imports more",
)
PARAM_DICT = PrivateName(
    *("deepspeed", "", "deepspeed.runtime.config", "DeepSpeedConfig._param_dict"),
    "the offload in force isn't observed",
)
ENGINE_CONFIG = PrivateName(
    *("deepspeed", "", "deepspeed.runtime.engine", "DeepSpeedEngine._config"),
    "the offload in force isn't observed, and universal checkpoints aren't loaded",
)
LOAD_UNIVERSAL = PrivateName(
    *("deepspeed", "", "deepspeed.runtime.config", "DeepSpeedConfig.load_universal_checkpoint"),
    "universal checkpoints aren't loaded",
)
FRAGMENTS = PrivateName(
    *("deepspeed", "", "deepspeed.utils.tensor_fragment", "get_hp_fragment_mapping"),
    "gradients that DeepSpeed loses aren't noticed",
)
NON_REENTRANT = PrivateName(
    *("deepspeed", "", "deepspeed.runtime.activation_checkpointing.checkpointing"),
    *("non_reentrant_checkpoint", "DeepSpeed's own checkpointing stays reentrant"),
)
INNER_LOOP = PrivateName(
    *("transformers", "", "transformers.trainer", "Trainer._inner_training_loop"),
    "a run that resumes with another micro batch keeps the checkpoint's",
)
SAVE_CHECKPOINT = PrivateName(
    *("transformers", "", "transformers.trainer", "Trainer._save_checkpoint"),
    "the time in which the Trainer saves counts as training",
)
ATTENTION = PrivateName(
    *("transformers", "", "transformers.configuration_utils"),
    *("PretrainedConfig._attn_implementation", "the kind of attention isn't observed"),
)
FROM_CONFIG = PrivateName(
    *("transformers", "", "transformers.modeling_utils", "PreTrainedModel._from_config"),
    "what a model made by from_config asks for is only known once it is made",
)
VALIDATE_LAUNCH = PrivateName(
    "accelerate", "", _ACCELERATE[0], "_validate_launch_command", _ACCELERATE[1]
)
ACTIONS = PrivateName(
    *("python", "", "argparse", "ArgumentParser._actions"),
    "an inner launch of `wrap`, completions and the manual page can't be made",
)
OPTION_ACTIONS = PrivateName(
    *("python", "", "argparse", "ArgumentParser._option_string_actions"),
    "options can't be set in configuration files",
)

NAMES = tuple(value for value in list(globals().values()) if isinstance(value, PrivateName))
"""All of them."""
