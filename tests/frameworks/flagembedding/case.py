"""FlagEmbedding's modules for fine-tuning, as its documentation starts them: torchrun -m."""

from __future__ import annotations

from pathlib import Path

from frameworks.cases import Case, Failure, logged_losses

PACKAGES = ("FlagEmbedding", "transformers", "peft", "accelerate", "deepspeed", "torch")
RERANKER = ("-m", "FlagEmbedding.finetune.reranker.decoder_only.base")
EMBEDDER = ("-m", "FlagEmbedding.finetune.embedder.encoder_only.base")
TORCHRUN = ("torchrun", "--nproc_per_node", "2")
OURS = ("safe-launch", "--nproc_per_node", "2", "--log-dir", "runs")
COMMON = (
    *("--train_data", "queries.jsonl"),
    *("--cache_path", "cache"),
    *("--train_group_size", "4"),
    *("--query_max_len", "64"),
    *("--passage_max_len", "64"),
    *("--knowledge_distillation", "False"),
    *("--output_dir", "out"),
    *("--per_device_train_batch_size", "2"),
    *("--max_steps", "8"),
    *("--save_steps", "8"),
    *("--logging_steps", "1"),
    *("--report_to", "none"),
    *("--use_cpu", "True"),
    *("--gradient_checkpointing", "True"),
)
LORA = (
    *("--model_name_or_path", "decoder"),
    *("--model_type", "decoder"),
    *("--use_lora", "True"),
    *("--lora_rank", "8"),
    *("--lora_alpha", "16"),
    *("--lora_dropout", "0"),
    *("--target_modules", "q_proj", "k_proj", "v_proj", "o_proj"),
    *("--query_instruction_for_rerank", "A: "),
    *("--passage_instruction_for_rerank", "B: "),
    *("--learning_rate", "5e-3"),
    *COMMON,
)
WHOLE = (
    *("--model_name_or_path", "encoder"),
    *("--query_instruction_for_retrieval", "Represent this sentence: "),
    *("--sentence_pooling_method", "cls"),
    *("--normalize_embeddings", "True"),
    *("--temperature", "0.02"),
    *("--learning_rate", "1e-3"),
    *COMMON,
)
REENTRANT = ("--gradient_checkpointing_kwargs", '{"use_reentrant": true}')
TO_OTHER = "gradient_checkpointing: reentrant -> non_reentrant"
STAGE_2 = ("--deepspeed", "zero2.json")


def case(name: str, module: tuple[str, ...], healthy: tuple[str, ...], failure: Failure) -> Case:
    """A case of one of its modules."""
    return Case(
        name=name,
        framework="FlagEmbedding",
        environment="trainers",
        packages=PACKAGES,
        prepare=Path(__file__).with_name("prepare.py"),
        own=(*TORCHRUN, *module),
        launched=(*OURS, *module),
        healthy=healthy,
        failure=failure,
        losses=logged_losses,
        variables={"HF_HOME": "hub"},
    )


CASES = (
    case(
        "flagembedding-reranker",
        RERANKER,
        LORA,
        Failure(
            arguments=(*LORA, *REENTRANT),
            dies="Expected to mark a variable ready only once",
            entry="ddp-parameter-ready-twice",
            change=TO_OTHER,
            attempts=1,
        ),
    ),
    # Its embedders run the model once for the queries and once for the passages.
    case(
        "flagembedding-embedder-zero2",
        EMBEDDER,
        (*WHOLE, *STAGE_2),
        Failure(
            arguments=(*WHOLE, *STAGE_2, *REENTRANT),
            dies=r"The parameter \S+ has already been reduced",
            entry="zero2-gradient-reduced-twice",
            change=TO_OTHER,
            attempts=2,
        ),
    ),
    # BERT's pooler takes no part in an embedding.
    case(
        "flagembedding-embedder-ddp",
        EMBEDDER,
        WHOLE,
        Failure(
            arguments=(*WHOLE, "--ddp_find_unused_parameters", "False"),
            dies="Expected to have finished reduction in the prior iteration",
            entry="ddp-unused-parameters",
            change="find_unused_parameters: False -> True",
            attempts=2,
        ),
    ),
)
