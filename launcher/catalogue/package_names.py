"""Maps files, modules, classes and functions to packages of training environments."""

from __future__ import annotations

import re
import sys

PYTHON = "Python"
"""Name of the standard library here."""
MODEL_CODE = "transformers_modules"
"""Folder of a model's Python files, which transformers runs if trusted."""
KNOWN = frozenset(
    [
        "FlagEmbedding",
        "accelerate",
        "apex",
        "auto_gptq",
        "autoawq",
        "awq",
        "axolotl",
        "bitsandbytes",
        "causal_conv1d",
        "colossalai",
        "datasets",
        "deepspeed",
        "diffusers",
        "evaluate",
        "flash_attn",
        "flashinfer",
        "fsspec",
        "gptqmodel",
        "huggingface_hub",
        "kernels",
        "lightning",
        "lightning_fabric",
        "liger_kernel",
        "lightning_utilities",
        "llamafactory",
        "llmtuner",
        "mamba_ssm",
        "megatron",
        "mindspeed",
        "mindspeed_llm",
        "modelscope",
        "nemo",
        "numba",
        "numpy",
        "openrlhf",
        "optimum",
        "outlines",
        "pandas",
        "peft",
        "pyarrow",
        "pydantic",
        "pytorch_lightning",
        "ray",
        "safetensors",
        "scipy",
        "sentence_transformers",
        "sglang",
        "sklearn",
        "swift",
        "tokenizers",
        "torch",
        "torch_npu",
        "torchao",
        "torchaudio",
        "torchmetrics",
        "torchtitan",
        "torchtune",
        "torchvision",
        "transformer_engine",
        "transformers",
        "triton",
        "trl",
        "unsloth",
        "unsloth_zoo",
        "verl",
        "vllm",
        "vllm_ascend",
        "wandb",
        "xformers",
        "xtuner",
    ]
)
"""Import names of packages also recognized in a checkout."""
DISTRIBUTIONS = {
    "awq": "autoawq",
    "flash_attn": "flash-attn",
    "flash_attn_2_cuda": "flash-attn",
    "flashinfer": "flashinfer-python",
    "llmtuner": "llamafactory",
    "megatron": "megatron-core",
    "megatron_fsdp": "megatron-fsdp",
    "nemo": "nemo-toolkit",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "swift": "ms-swift",
}
"""Distribution names of packages whose import name differs."""
INSTALLED = re.compile(r"(?:.*/)?(?:(?:site|dist)-packages|\.\.\.)/(?P<package>\w+)")
"""Path of an installed module, possibly shortened to `...` by people and excerpts."""
CHECKOUT = re.compile(
    rf"(?:.*?/)?(?P<package>{'|'.join(sorted(KNOWN))})/(?!examples/|tests/|(?P=package)/)"
    r"(?=(?:(?!src/)[a-z_]\w*/)*[^/]*\Z)"
)
"""Path of a module in a checkout: of the outermost package with only modules below it, as
`openrlhf/trainer/ray/` is openrlhf's."""
STANDARD = re.compile(
    r"^<frozen |(?:^|/)lib(?:64)?/python3\.\d+/|/Python3\d+/[Ll]ib/"
    r"|(?:^|/)(?:multiprocessing|concurrent|importlib)/"
    r"|(?:^|/)(?:runpy|threading|contextlib|functools)\.py$"
)
"""Files of the standard library; the most common ones also without a folder."""

MODELS = (
    r"Llama\d?|Mistral\d?|Mixtral|Qwen\d?(_5)?(_?VL|Moe|Next|Audio|Omni\w*)?|Gemma\dn?|Gemma|Phi\d?"
    r"|DeepseekV\d|GPT2|GPTNeoX|GptOss|Bert|Roberta|XLMRoberta|DebertaV2|M?T5|OPT|Bloom|Falcon"
    r"|Glm\d?(v|Moe)?|Llava(Next)?|Idefics\d|Mllama|Whisper|CLIP|Siglip|Cohere\d?|Mamba2?|Olmo\d?"
    r"|Granite|Starcoder2|InternVL|Seed\w*"
)
"""Families of models in transformers."""
PARTS = (
    r"Config|Tokenizer|TokenizerFast|Processor|ImageProcessor(Fast)?|Model|Attention|DecoderLayer"
    r"|RotaryEmbedding|For(CausalLM|ConditionalGeneration|SequenceClassification|TokenClassification)"
)
"""Suffixes of such models' classes."""

# Classes and functions unique to a package, except classes of wrapped models
# (DeepSpeedEngine, PeftModel), which pass on the model's attributes.
OWNERS = {
    "accelerate": (
        r"Accelerator(State)?|PartialState|GradientState|Accelerated(Optimizer|Scheduler)"
        r"|DeepSpeedPlugin|FullyShardedDataParallelPlugin|DataLoaderConfiguration"
        r"|DataLoader(Shard|Dispatcher)|dispatch_model|unwrap_model|extract_model_from_parallel"
        r"|infer_auto_device_map|load_checkpoint_and_dispatch|init_empty_weights"
    ),
    "deepspeed": r"DeepSpeed(Zero\w*|CPUAdam|HybridEngine|Config)|FusedAdam|PipelineModule",
    "vllm": (
        r"(Async)?EngineArgs|(Async)?LLM(Engine)?|SamplingParams|EngineCore\w*|VllmConfig"
        r"|GPUModelRunner|FlexibleArgumentParser"
    ),
    "sglang": r"ServerArgs|SRTRunner",
    "peft": r"(Lora|AdaLora|LoHa|IA3|LoKr|Boft|OFT|VeRA)(Config|Model)|get_peft_model",
    "trl": r"(SFT|DPO|GRPO|KTO|ORPO|CPO|RLOO|GKD|BCO|PPO|Reward)(Trainer|Config)",
    "huggingface_hub": r"HfApi|HfFolder|hf_hub_download|cached_download|snapshot_download",
    "tokenizers": r"ByteLevelBPETokenizer|BertWordPieceTokenizer",
    "flash_attn": r"_?flash_attn_\w+|index_first_axis|(un)?pad_input",
    "datasets": r"load_dataset|IterableDatasetDict|DatasetDict|DatasetBuilder",
    "triton": r"JITFunction|CompiledKernel|ASTSource|Autotuner",
    "torch": (
        r"GradScaler|DTensor|DeviceMesh|_MeshEnv|init_device_mesh|init_process_group|StatefulDataLoader"
        r"|FSDPParam\w*"
    ),
    "transformers": (
        r"(Seq2Seq)?Trainer|(Seq2Seq)?TrainingArguments|PreTrainedModel|PretrainedConfig"
        r"|PreTrainedTokenizer\w*|TokenizersBackend|GenerationConfig|BitsAndBytesConfig"
        r"|ProcessorMixin|Auto(Config|Tokenizer|Processor|Model\w*)"
        r"|(Dynamic|Static|Hybrid|EncoderDecoder|SlidingWindow)Cache"
        rf"|({MODELS})(Text|Vision|Audio|Thinker|Moe|VL)?({PARTS})"
    ),
}
OWNED = tuple((package, re.compile(rf"(?:{names})\Z")) for package, names in OWNERS.items())


def package_of_file(path: str) -> str | None:
    """The import name of a file's package; None for other files."""
    path = path.replace("\\", "/")
    if f"/{MODEL_CODE}/" in path:
        return MODEL_CODE
    if "/unsloth_compiled_cache/" in path:
        return "unsloth"  # which writes these files
    if (inside := path_in_package(path)) is not None:
        return re.split(r"\W", inside, maxsplit=1)[0]
    return PYTHON if STANDARD.search(path) else None


def path_in_package(path: str) -> str | None:
    """A file's path from its package's name on; None for other files.

    Args:
        path: with forward slashes.
    """
    found = INSTALLED.match(path) or CHECKOUT.match(path)
    return path[found.start("package") :] if found else None


def package_of_module(module: str) -> str | None:
    """The known package of a module, if any."""
    root = module.partition(".")[0]
    if root in KNOWN:
        return root
    return PYTHON if root in sys.stdlib_module_names else None


def package_of_name(name: str) -> str | None:
    """The only package with a class or function of this name, if any."""
    return next((package for package, names in OWNED if names.match(name)), None)


def pip_name(package: str) -> str:
    """A package's distribution name."""
    return DISTRIBUTIONS.get(package, package)
