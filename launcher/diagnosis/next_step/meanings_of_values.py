"""Meanings of exceptions that are about values, for the lines that raise them."""

from __future__ import annotations

from dataclasses import dataclass

NAME = r"[A-Za-z_][\w.]*(?:\[[^\]\[]{1,40}\])?"


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meaning of an exception for the line that raised it.

    Attributes:
        kinds: pattern of the exception's type.
        message: pattern searched in its message.
        do: the advice, with names of the patterns' groups in braces.
        source: pattern searched in the line, which must match; empty for any line.
    """

    kinds: str
    message: str
    do: str
    source: str = ""


MEANINGS_OF_VALUES = (
    Meaning(
        "TypeError|ValueError",
        r"argument '(?P<name>\w+)'.*NoneType",
        "`{name}` is None or has a None in it: nothing has set it. Often it is a special token that"
        " this tokenizer lacks, as `tokenizer.pad_token` and `eos_token`: set it.",
    ),
    Meaning(
        "TypeError|ValueError",
        r"'NoneType' object is not|not 'NoneType'",
        "Set `{name}`, which is None there: give it a value in the arguments or the configuration,"
        " if need be an empty one.",
        r"\b(?:args|config|cfg|conf|hparams|opts?)\.(?P<name>\w+)",
    ),
    Meaning(
        "TypeError|ValueError",
        r"'NoneType' object is not",
        "See that this rank has data, from the same files and cache folder as node 0 (a shared file"
        " system), and look further up for what wasn't found: `{name}` is None there, so what"
        " should have made it has made nothing on this rank.",
        rf"\b(?:next|iter|list|set|tuple|enumerate|zip)\((?P<name>{NAME})[,)]",
    ),
    Meaning(
        "AttributeError",
        r"Can't get attribute '(?P<name>\w+)' on <module '(?!__)(?P<module>[\w.]+)'",
        "The file that is loaded was saved when {module} still had `{name}`: convert it or make it"
        " anew with the installed version, or install the one that saved it.",
    ),
    Meaning(
        "IndexError|RuntimeError|ValueError",
        r"is an? empty|on (?:an )?empty tensor|non-zero size|zero-size array",
        "Unfreeze what is to be trained, if all of it is frozen: there is no parameter here. If a"
        " frozen model is prepared (a reference, a teacher), give it no optimizer: delete"
        " `optimizer` and `scheduler` from the DeepSpeed configuration.",
        r"\b(?:ds_numel|\w*param_groups|fp16_partitioned_groups|params|psg)\b|\bparameters\(\)",
    ),
    Meaning(
        "IndexError|RuntimeError|ValueError",
        r"to have non-zero size|zero-size array|(?:arg|argument) is an? empty|on (?:an )?empty"
        r" tensor|cannot (?:be|take) (?:an )?empty",
        "Print the sizes of what is reduced there, as it is empty: maybe no sample, token or"
        " completion has come that far (lengths of sequence, prompt and completion, filters), or no"
        " parameter is trainable.",
    ),
    Meaning(
        "TypeError",
        r"not supported between instances of 'NoneType' and 'str'",
        "Install the package whose version is compared there, or choose the option that does"
        " without it: `{name}` is None, so that it mostly isn't installed in this environment.",
        r"(?i)(?P<name>[\w.]*version[\w.]*)(?:\([^()]*\))? *[<>]=?",
    ),
    Meaning(
        "TypeError",
        r"^'[<>]=?' not supported between instances of"
        r" '(?:NoneType' and '(?:int|float)|(?:int|float)' and 'NoneType)'",
        "Give the number that is compared there a value, as it is None: mostly a setting that was"
        " passed as None or left out. Leave it at its default, or set it.",
    ),
    Meaning(
        "RuntimeError",
        r"argument #1 'indices' to have .*Long.* but got \S*(?:Float|Half|Double|BFloat16)",
        "Look for samples without text (a missing caption, an empty prompt): a tensor that is made"
        " of an empty list holds floating point numbers, and an embedding takes whole ones. If the"
        " samples are whole, the ids were cast: keep them as `torch.long`.",
    ),
    Meaning(
        "ImportError|OSError",
        r"(?P<file>[^\s:]+\.so[\w.]*): file too short",
        "Delete {file} and build or install it anew, once and by one process: the file is cut, as"
        " when its build was interrupted, or several ranks wrote it at once.",
    ),
    Meaning(
        "TypeError",
        r"^'(?:type|ABCMeta)' object is not subscriptable",
        "Use Python 3.9 or newer, if this line has a type such as `list[...]` or `dict[...]`, which"
        " older ones don't know; or a release of the code for this Python.",
    ),
    Meaning(
        "AssertionError",
        r"^expected size \d+==\d+, stride \d+==\d+ at dim=\d+",
        "Run without torch.compile (`export TORCHDYNAMO_DISABLE=1`), or pad all samples to one"
        " length: its code was made for another memory layout than this batch has.",
    ),
    Meaning(
        "RuntimeError",
        r"^Tensors of the same index must be on the same device and the same dtype",
        "Upgrade transformers (4.47 or newer) if its Trainer runs under FSDP and accumulates"
        " gradients: before, they could have another dtype than the weights. In a loop of your own"
        " make the optimizer after the model was cast and moved, and cast no gradients.",
    ),
    Meaning(
        "FrozenInstanceError",
        r"cannot assign to field '?(?P<name>\w+)",
        "Install the versions that the script's requirements name, or give `{name}` its value"
        " before these arguments are made: in the installed version they can't be changed"
        " afterwards, and the code above this line does.",
    ),
    Meaning(
        "ValueError",
        r"^(?P<value>'[^']+'|\d+) is not a valid (?P<type>[A-Z]\w+)$",
        "Update the code or package that has `{type}`, or give one of the values that"
        " `list({type})` shows: what asks for {value} is of another version, or it's misspelt.",
    ),
    Meaning(
        "EOFError",
        r"^Ran out of input$",
        "Delete the file that is loaded there and get or save it anew: it is empty or cut. With"
        " several ranks another may still be writing it: let one rank fetch or save it, and the"
        " others wait (`torch.distributed.barrier()`).",
    ),
    Meaning(
        "RuntimeError",
        r"(?:cat|stack)\w*\(?\)?: ?expected a non-empty (?:list|TensorList)"
        r"|expects a non-empty TensorList",
        "Print what is collected there: the list of tensors is empty, so that nothing was made of"
        " this batch: an empty prompt (see what the chat template makes of the first sample), no"
        " image, no sample, or a rank without data.",
    ),
    Meaning(
        "KeyError",
        r"^(?P<key>'(?:exp_avg|exp_avg_sq|max_exp_avg_sq|momentum_buffer)')$",
        "Train in bf16, begin with a smaller loss scale (Megatron: `--initial-loss-scale 65536`),"
        " or save later: the optimizer has no state {key} yet, as it hasn't made a step. In fp16"
        " the first steps overflow, and are skipped until the loss scale has come down.",
    ),
    Meaning(
        "RuntimeError|ValueError",
        r"\breturned nan values\b|\b(?:loss|gradients?|logits|weights?|parameters?)"
        r" (?:is|are|contains?|has|have) (?:nan|NaN|inf\b|non-finite)",
        "Find where the first inf or NaN comes from: use bf16 instead of fp16, lower the learning"
        " rate or lengthen its warmup, clip gradients, and look for empty samples (all labels"
        " masked) and divisions by zero in the loss.",
    ),
    Meaning(
        "RuntimeError|ValueError",
        r"Invalid rank (?P<rank>\d+), rank should be in the interval \[0, (?P<last>\d+)\]",
        "Set the Trainer's `num_nodes`, or the sampler's `num_replicas` to the number of all ranks"
        " (WORLD_SIZE): the sampler was made for one node (ranks 0 to {last}), though rank {rank}"
        " runs. If it is set, the strategy ignores it, as FSDPStrategy of Lightning 2.0.0 does:"
        " upgrade lightning, or set `strategy.num_nodes = N` by hand.",
    ),
    Meaning(
        "RuntimeError",
        r"^generator raised StopIteration",
        "Make more and smaller data files or shards, or a smaller `n_chunks`, or let the loader"
        " begin again (`wrap=True`, repeat), or use fewer ranks: an iterator is exhausted at once,"
        " as this rank's share of the data has fewer files or chunks than the loader takes at a"
        " time.",
    ),
    Meaning(
        "OSError",
        r"\[Errno 22\] Invalid argument$",
        "Print `{args}` just before: the system refuses what `{call}` was given, such as an empty"
        " list, or a number that this node or its container doesn't have. Leave the call out if it"
        " only tunes speed, as an affinity does.",
        r"(?P<call>[\w.]+)\((?P<args>.+)\)$",
    ),
    Meaning(
        "RuntimeError",
        r"mat1 and mat2 shapes cannot be multiplied \((?P<left>\w+) and (?P<right>1x\d{5,})\)",
        "Call the quantized layer itself, or upgrade the package whose code reads its weight (peft,"
        " the model's own code): {right} is a weight of bitsandbytes packed to 4 bits, which a"
        " plain multiplication can't use. Or leave this layer out of the quantization"
        " (`llm_int8_skip_modules`).",
    ),
    Meaning(
        "RuntimeError|ValueError",
        r"mat1 and mat2 shapes cannot be multiplied \((?P<left>\w+) and (?P<right>\w+)\)",
        "The input is {left} and the layer's weight {right}: the input's last size must be the"
        " layer's `in_features`. Change the one of the two that is wrong. If one is a multiple of"
        " the other, samples or parts were joined along the wrong dimension: try a batch of 1.",
    ),
    Meaning(
        "RuntimeError|ValueError",
        r"size of tensor a \((?P<a>\d+)\) must match the size of tensor b \((?P<b>\d+)\)(?: at"
        r" non-singleton dimension (?P<dim>\d+))?",
        "Print both shapes before this line: two tensors are {a} and {b} long where they should be"
        " equal. Maybe one isn't padded, cut, transposed or gathered like the other.",
    ),
    Meaning(
        "RuntimeError|ValueError",
        r"[Ss]izes of tensors must match except in dimension (?P<dim>\d+)",
        "Compare the tensors that are joined: they differ in another size than number {dim}. Pad or"
        " cut samples to one length; sizes of the model's own (heads, channels) differ if a"
        " configuration, a cache or an adapter is another model's or version's.",
    ),
    Meaning(
        "RuntimeError",
        r"stack expects each tensor to be equal size, but got \[(?P<a>[\d, ]+)\] at entry \d+ and"
        r" \[(?P<b>[\d, ]+)\]",
        "Pad or cut the samples of a batch to one size in the collate function"
        " (`torch.nn.utils.rnn.pad_sequence`, a collator that pads): one has {a}, another {b}.",
    ),
    Meaning(
        "RuntimeError",
        r"shape '(?P<shape>\[[^\]]+\])' is invalid for input of size (?P<size>\d+)",
        "{size} elements don't make the shape {shape}: a size in it is computed wrongly, or an"
        " earlier step drops or adds elements.",
    ),
    Meaning(
        "JSONDecodeError",
        "",
        "The text isn't JSON, or is empty. Print its first line and its length; JSON Lines are read"
        " a line at a time.",
    ),
    Meaning(
        "ZeroDivisionError",
        "",
        "See how many samples and batches this rank has (`print(len(loader))`): `{name}` is 0, so"
        " its share is empty, as with fewer samples than ranks times batch, a filter that removed"
        " all, or a library that left the data on another rank. If so, upgrade that, or try one"
        " process.",
        r"^[^/%]*(?://?|%)=?\s*\(?(?P<name>(?:[\w]+\.)*\w*(?:num_\w*(?:steps|batches|samples)|per_epoch))(?![\w(\[])[^/%]*$",
    ),
    Meaning(
        "ZeroDivisionError",
        "",
        "`{name}` is 0 there. If it is a setting, make it larger: a number that is divided by that"
        " of the ranks (`//`) becomes 0 if it is smaller. If it counts samples or batches, the data"
        " set or loader is empty, as with fewer samples than ranks times batch and"
        " `drop_last=True`.",
        rf"^[^/%]*(?://?|%)=?\s*\(?(?P<name>{NAME}(?:\([\w.]*\))?)(?![\w(\[])[^/%]*$",
    ),
    Meaning(
        "ZeroDivisionError",
        "",
        "Use fewer ranks or more data, if what is divided by counts samples or batches: this rank"
        " has none, as with fewer samples than ranks times batch and `drop_last=True`. If it is a"
        " setting, make it larger.",
    ),
    Meaning(
        "AssertionError",
        "",
        "Start it on {number} GPUs ({number} ranks): the script wants `{name}` to be {number}. Or"
        " change this check, and the gradient accumulation with it, so that the batch stays.",
        r"\bassert [^%/]*?"
        r"(?P<name>[\w.]*(?:world_?size|n_?gpus?|num_gpus|nproc\w*|device_count\(\)))\s*==\s*(?P<number>\d+)",
    ),
    Meaning(
        "AssertionError",
        "^$",
        "Make `{name}` a multiple of `{by}`, or choose another number of ranks: here it isn't.",
        r"\bassert \(?(?P<name>[\w.]+) % (?P<by>[\w.]+)\)? == 0\b",
    ),
    Meaning(
        "AssertionError",
        "^$",
        "Lower the global batch size, or give more samples, rollouts, iterations or epochs:"
        " `{name}` came out as 0, so the settings make no whole step of the training, or of an"
        " evaluation (Megatron: `--split` and `--eval-iters`, both with a share or both 0).",
        r"\bassert (?:self\.|args\.)?(?P<name>\w*(?:steps|iters|batches|samples)\w*) > 0\b",
    ),
)
