"""Maps files, modules, classes and functions to packages of training environments."""

from __future__ import annotations

import re
import sys

from ..frameworks.framework import OF_TRL
from ..frameworks.registry import OF_PACKAGE

PYTHON = "Python"
"""Name of the standard library here."""
MODEL_CODE = "transformers_modules"
"""Folder of a model's Python files, which transformers runs if trusted."""
LIBRARIES = {
    "apex": "NVIDIA/apex",
    "bitsandbytes": "bitsandbytes-foundation/bitsandbytes",
    "colossalai": "hpcaitech/ColossalAI",
    "datasets": "huggingface/datasets",
    "deepspeed": "deepspeedai/DeepSpeed",
    "diffusers": "huggingface/diffusers",
    "flash_attn": "Dao-AILab/flash-attention",
    "huggingface_hub": "huggingface/huggingface_hub",
    "liger_kernel": "linkedin/Liger-Kernel",
    "peft": "huggingface/peft",
    "ray": "ray-project/ray",
    "sglang": "sgl-project/sglang",
    "tokenizers": "huggingface/tokenizers",
    "torch": "pytorch/pytorch",
    "torch_npu": "Ascend/pytorch",
    "torchao": "pytorch/ao",
    "transformer_engine": "NVIDIA/TransformerEngine",
    "triton": "triton-lang/triton",
    "unsloth": "unslothai/unsloth",
    "unsloth_zoo": "unslothai/unsloth",
    "vllm": "vllm-project/vllm",
    "vllm_ascend": "vllm-project/vllm-ascend",
    "wandb": "wandb/wandb",
    "xformers": "facebookresearch/xformers",
    **dict.fromkeys(
        (
            *("PIL", "auto_gptq", "autoawq", "awq", "causal_conv1d", "compressed_tensors"),
            *("evaluate", "flashinfer", "fsspec", "gptqmodel", "kernels", "lightning_utilities"),
            *("mamba_ssm", "mindspeed", "mindspeed_llm", "mistral_common", "modelscope", "numba"),
            *("numpy", "optimum", "outlines", "pandas", "pkg_resources", "pyarrow", "pydantic"),
            *("safetensors", "scipy", "sentence_transformers", "setuptools", "sklearn"),
            *("tensordict", "timm", "torchaudio", "torchdata", "torchmetrics", "torchvision"),
            "xtuner",
        ),
        "",
    ),
}
"""Packages that aren't frameworks, and their repositories on github.com, if their bugs go there."""
PACKAGES = LIBRARIES | {name: row.repository for name, row in OF_PACKAGE.items()}
"""All by import name, with their repositories; they are recognized in a checkout, too."""
PROJECTS = {
    "alignment-handbook": "huggingface/alignment-handbook",
    "DeepSpeedExamples": "deepspeedai/DeepSpeedExamples",
    "EasyR1": "hiyouga/EasyR1",
    "FastChat": "lm-sys/FastChat",
    "kohya_ss": "bmaltais/kohya_ss",
    "LLaVA": "haotian-liu/LLaVA",
    "LLaVA-NeXT": "LLaVA-VL/LLaVA-NeXT",
    "lora-scripts": "Akegarasu/lora-scripts",
    "Megatron-DeepSpeed": "deepspeedai/Megatron-DeepSpeed",
    "nanoGPT": "karpathy/nanoGPT",
    "open-r1": "huggingface/open-r1",
    "sd-scripts": "kohya-ss/sd-scripts",
}
"""Repositories of scripts by the folder of their checkout."""
DISTRIBUTIONS = {
    "Levenshtein": "python-Levenshtein",
    "PIL": "pillow",
    "awq": "autoawq",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "faiss": "faiss-cpu",
    "fitz": "PyMuPDF",
    "flash_attn": "flash-attn",
    "flash_attn_2_cuda": "flash-attn",
    "flashinfer": "flashinfer-python",
    "git": "GitPython",
    "google": "protobuf",
    "hydra": "hydra-core",
    "megatron_fsdp": "megatron-fsdp",
    "open_clip": "open-clip-torch",
    "pkg_resources": "setuptools",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "transformer_engine": "transformer-engine[pytorch]",
    "yaml": "pyyaml",
    **{name: row.distribution for name, row in OF_PACKAGE.items() if row.distribution},
}
"""Distribution names of packages whose import name differs."""
SOURCES = {
    "apex": "NVIDIA/apex",
    "clip": "openai/CLIP",
    "detectron2": "facebookresearch/detectron2",
}
"""Repositories of packages that are installed from their source: PyPI's of the same name are
others', or none."""
INSTALLED = re.compile(r"(?:.*/)?(?:(?:site|dist)-packages/|\.\.\./(?=.*/))(?P<package>\w+)")
"""Path of an installed module, possibly shortened to `...` by people and excerpts."""
CHECKOUT = re.compile(
    rf"(?:.*?/)??(?P<package>{'|'.join(sorted(PACKAGES))})/(?!examples/|tests/|(?P=package)/)"
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
        r"|(DeepSpeed|FullyShardedDataParallel|GradientAccumulation)Plugin|DataLoaderConfiguration"
        r"|DataLoader(Shard|Dispatcher)|dispatch_model|unwrap_model|extract_model_from_parallel"
        r"|infer_auto_device_map|load_checkpoint_and_dispatch|init_empty_weights"
    ),
    "detectron2": r"Default(Trainer|Predictor)|SimpleTrainer|AMPTrainer|GeneralizedRCNN",
    # other packages wrap it by classes of such names; its engine wraps a model
    "deepspeed": (
        r"DeepSpeed(?!Engine|Plugin|Strategy|Accelerator|Trainer|Callback|Launch|Arg|Rank|Precision"
        r"|Integration|Backend|Worker)\w*(?<!Wrapper)|FusedAdam|PipelineModule"
    ),
    "liger_kernel": r"Liger\w+",
    "vllm": (
        r"(Async)?EngineArgs|(Async)?LLM(Engine)?|SamplingParams|EngineCore\w*|VllmConfig"
        r"|GPUModelRunner|FlexibleArgumentParser"
    ),
    "sglang": r"ServerArgs|SRTRunner",
    "google": r"MessageFactory|SymbolDatabase|FieldDescriptor",
    "peft": r"(Lora|AdaLora|LoHa|IA3|LoKr|Boft|OFT|VeRA)(Config|Model)|get_peft_model",
    "trl": rf"({OF_TRL})(Trainer|Config)",
    "huggingface_hub": r"HfApi|HfFolder|hf_hub_download|cached_download|snapshot_download",
    "tokenizers": r"ByteLevelBPETokenizer|BertWordPieceTokenizer",
    "flash_attn": r"_?flash_attn_\w+|index_first_axis|(un)?pad_input",
    "datasets": r"load_dataset|IterableDatasetDict|DatasetDict|DatasetBuilder",
    "triton": r"JITFunction|CompiledKernel|ASTSource|Autotuner",
    # Megatron's layers of it, which it defines only if the package is there
    "transformer_engine": r"TE(?!xt|mp|st)[A-Z]\w+|TransformerEngine\w*",
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
    if f"/{MODEL_CODE}/" in f"/{path}":
        return MODEL_CODE
    if "/unsloth_compiled_cache/" in path:
        return "unsloth"  # which writes these files
    if (inside := path_in_package(path)) is not None:
        return re.split(r"\W", inside, maxsplit=1)[0]
    return PYTHON if STANDARD.search(path) else None


def project_of_file(path: str) -> str:
    """The repository of a script in a checkout; empty if unknown."""
    folders = reversed(path.replace("\\", "/").split("/"))
    return next((PROJECTS[name] for name in folders if name in PROJECTS), "")


def path_in_package(path: str) -> str | None:
    """A file's path from its package's name on; None for other files.

    Args:
        path: with forward slashes.
    """
    match = INSTALLED.match(path) or CHECKOUT.match(path)
    return path[match.start("package") :] if match else None


def checkout_of(path: str) -> str:
    """The folder of a package's clone that a file is in; empty for an installed or other file."""
    path = path.replace("\\", "/")
    match = None if INSTALLED.match(path) else CHECKOUT.match(path)
    return path[: match.start("package")].rstrip("/") if match else ""


def package_of_module(module: str) -> str | None:
    """The known package of a module, if any."""
    root = "setuptools" if module.startswith("distutils") else module.partition(".")[0]
    if root in PACKAGES or module.startswith("google.protobuf"):
        return root
    return PYTHON if root in sys.stdlib_module_names else None


def package_of_name(name: str) -> str | None:
    """The only package with a class or function of this name, if any."""
    return next((package for package, names in OWNED if names.match(name)), None)


def pip_name(package: str) -> str:
    """A package's distribution name."""
    return DISTRIBUTIONS.get(package, package)
