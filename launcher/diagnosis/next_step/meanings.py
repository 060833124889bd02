"""Meanings of exceptions for lines that raise them, or about values; the first match counts."""

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
        r"to have non-zero size|zero-size array|(?:arg|argument) is an? empty|on (?:an )?empty"
        r" tensor|cannot (?:be|take) (?:an )?empty",
        "What is reduced there is empty: no sample, token or completion has come that far. See the"
        " sizes of what goes in, and the limits that cut it (lengths of sequence, prompt and"
        " completion, filters).",
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
        "The tensors that are joined differ in another size than number {dim}. Pad or cut the"
        " samples to one length first.",
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
        "`{name}` is 0 there. If it is a setting, make it larger: a number that is divided by that"
        " of the ranks (`//`) becomes 0 if it is smaller. If it counts samples or batches, the data"
        " set or loader is empty, as with fewer samples than ranks times batch and"
        " `drop_last=True`.",
        rf"^[^/%]*(?://?|%)=?\s*\(?(?P<name>{NAME}(?:\([\w.]*\))?)(?![\w(\[])[^/%]*$",
    ),
    Meaning(
        "AssertionError",
        "",
        "Start it on {number} GPUs ({number} ranks): the script wants `{name}` to be {number}. Or"
        " change this check, and the gradient accumulation with it, so that the batch stays.",
        r"\bassert .*?(?P<name>[\w.]*(?:world_?size|n_?gpus?|num_gpus|nproc\w*|device_count\(\)))"
        r"\s*==\s*(?P<number>\d+)",
    ),
    Meaning(
        "AssertionError",
        "^$",
        "Lower the global batch size, or give more samples, rollouts, iterations or epochs:"
        " `{name}` came out as 0, so the settings don't make one whole training step.",
        r"\bassert (?:self\.|args\.)?(?P<name>\w*(?:steps|iters|batches|samples)\w*) > 0\b",
    ),
)
MEANINGS = (
    Meaning(
        "TypeError",
        r"not '?NoneType'?$|not 'NoneType'|unsupported operand .*'NoneType'",
        "`{name}` is None there: nothing has set it. Set it where the arguments or the"
        " configuration are read.",
        rf"\b(?:int|float|len|list|set|tuple|sorted|enumerate|iter|range|sum|open|Path|join)\((?P<name>{NAME})[,)]",
    ),
    *MEANINGS_OF_VALUES,
    Meaning(
        "AttributeError",
        r"^'NoneType' object has no attribute '(?P<wanted>\w+)'",
        "`{name}` is None there. Find where it gets its value, and why it got none.",
        rf"(?P<name>{NAME}(?:\([^()]*\))?)\.(?P<_>\w+)",
    ),
    Meaning(
        "AttributeError|TypeError",
        r"'?NoneType'?",
        "A value in this line is None: nothing has set it, or a call returned nothing. Print the"
        " line's values to see which.",
    ),
    Meaning(
        "AttributeError",
        r"^'Namespace' object has no attribute '(?P<wanted>\w+)'",
        'The arguments have no `{wanted}`: declare it in the parser, `add_argument("--{wanted}")`,'
        " or read another name.",
    ),
    Meaning(
        "AttributeError",
        r"no attribute '(?P<wanted>\w+)'\. Did you mean: '(?P<other>\w+)'",
        "Write `{other}` for `{wanted}` if it is misspelt. If a library makes the object, install"
        " the version of it that the script was written for.",
    ),
    Meaning(
        "AttributeError",
        r"^'(?P<type>\w+)' object has no attribute '(?P<wanted>\w+)'",
        "The object is a `{type}` and has no `{wanted}`: it isn't what this line takes it for. Look"
        " where it is made. If a library makes it, install the version of that which the script was"
        " written for.",
    ),
    Meaning(
        "KeyError",
        r"^(?P<key>'[\w.]+\.(?:weight|bias)')$",
        "Take the script or the option for the kind of model that the file holds, or the right"
        " file: its weights are another model's, without {key}.",
    ),
    Meaning(
        "KeyError",
        r"^'(?P<key>[A-Za-z_]\w*(?:\.\w+)*\.\d+(?:\.\w+)*)'$",
        "Look for `module.{key}`, or take the names from `model.module`, if the model is wrapped:"
        " DDP puts `module.` before all names of layers. Else print the keys that there are.",
    ),
    Meaning(
        "KeyError",
        r"^(?P<key>'[^']+'|\"[^\"]+\"|[\w.-]+)$",
        "Add {key} to the configuration, which doesn't have it, or take the configuration that"
        " comes with this version of the code.",
        r"\b\w*(?:cfg|conf|config|args|params|hparams|opts?|settings)(?:\.\w+)*(?:\[|\.pop\()",
    ),
    Meaning(
        "KeyError",
        r"^(?P<key>'[^']+'|\"[^\"]+\"|[\w.-]+)$",
        "There is no key {key}. Print the keys that there are (`list(....keys())`), and correct the"
        " name in the script or in the data.",
    ),
    Meaning(
        "IndexError",
        r"index (?P<index>-?\d+) is out of bounds for .*size (?P<size>\d+)",
        "Index {index} is asked of {size} elements: the list of indices and the data are of"
        " different lengths.",
    ),
    Meaning(
        "IndexError",
        "",
        "An index is asked that isn't there: what is indexed is shorter than the line takes it for,"
        " often empty. Print its length.",
    ),
    Meaning(
        "ZeroDivisionError",
        "",
        "What is divided by is 0: mostly the length of an empty data set or loader.",
    ),
    Meaning(
        "UnboundLocalError|NameError",
        r"'(?P<name>\w+)'",
        "`{name}` has no value here: it is set in another branch, misspelt, or not imported.",
    ),
    Meaning(
        "FileNotFoundError|NotADirectoryError|IsADirectoryError",
        r"'(?P<path>[^']+)'",
        "{path} isn't there for this process. See `ls -l` on the node and in the container that"
        " failed; relative paths count from the working folder.",
    ),
    Meaning(
        "FileExistsError",
        r"'(?P<path>[^']+)'",
        "{path} is already there: `os.makedirs(..., exist_ok=True)`, or another name for this run.",
    ),
    Meaning(
        "TypeError",
        r"can only concatenate (?P<a>\w+) \(not \"(?P<b>\w+)\"\)"
        r"|unsupported operand type\(s\) for \S+: '(?P<c>\w+)' and '(?P<d>\w+)'",
        "The two sides of this line are of different types: convert one. A prompt that is a list of"
        " messages becomes text by `tokenizer.apply_chat_template(..., tokenize=False)`.",
    ),
    Meaning(
        "ValueError",
        r"too many values to unpack \(expected (?P<number>\d+)",
        "The right side gives more than {number} values: a function returns more than this script"
        " was written for, perhaps in another version of its package.",
    ),
    Meaning(
        "ValueError",
        r"not enough values to unpack \(expected (?P<number>[\w ]+), got (?P<got>\d+)",
        "Print the right side, which gives {got} values instead of {number}. Maybe a batch is"
        " empty, or the data set, the function or its version is another than this script was"
        " written for.",
    ),
    Meaning(
        "ValueError",
        r"invalid literal for int\(\) with base 10: (?P<value>'.*')|could not convert string to"
        r" float: (?P<text>'.*')",
        "The text isn't a number: correct it where it is written, in a file, an argument or a"
        " variable of the environment.",
    ),
    Meaning(
        "UnicodeDecodeError",
        "",
        "The file isn't text in that encoding: name the right one (`encoding=...`), or read it as"
        " bytes.",
    ),
    Meaning(
        "ModuleNotFoundError",
        r"No module named '(?P<name>[\w.]+)'",
        "`{name}` isn't found by this Python: install it in this environment, or start from the"
        " project's folder (`export PYTHONPATH=$PWD`).",
    ),
    Meaning(
        "TypeError",
        r"(?P<function>[\w.]+)\(\) got an unexpected keyword argument '(?P<name>\w+)'",
        "`{function}` takes no `{name}`: it is misspelt, or belongs to another version of what is"
        " called.",
    ),
    Meaning(
        "TypeError",
        r"(?P<function>[\w.]+)\(\) missing (?P<count>\d+) required .*arguments?: (?P<names>.+)$",
        "`{function}` also wants {names}: pass it here.",
    ),
    Meaning(
        "TypeError",
        r"'(?P<type>\w+)' object is not (?P<what>callable|iterable|subscriptable)",
        "A `{type}` stands where the line takes something that is {what}: look where it gets its"
        " value.",
    ),
    Meaning(
        "AssertionError",
        "^$",
        "The condition of this line doesn't hold: print both of its sides just before it.",
    ),
    Meaning(
        "PicklingError|TypeError|AttributeError",
        r"[Cc]an't (?:pickle|get local)",
        "What is handed to another process can't be copied: define it at the top of a module, not"
        " within a function; `num_workers=0` avoids the copying.",
    ),
    Meaning(
        "RecursionError",
        "",
        "A function calls itself without an end: see which repeats in the traceback.",
    ),
    Meaning(
        "NotImplementedError",
        "",
        "This class leaves the method to its subclasses: the one that is used doesn't define it.",
    ),
    Meaning("KeyboardInterrupt", "", "Somebody stopped it by hand: nothing is to be mended."),
)
