"""Meanings of exceptions for the lines that raise them; the first match counts."""

from __future__ import annotations

from .meanings_of_values import MEANINGS_OF_VALUES, NAME, Meaning

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
        r"^(?P<key>'(?:\w*optim\w*|\w*scheduler|scaler|model|state_dict|epoch|iteration|\w*steps?)')$",
        "Load {key} from where it was saved, as the checkpoint doesn't hold it: sharded states"
        " (ZeRO, FSDP) lie in files of their own, which the library that wrote them loads. Or go"
        " on without it, if it was saved without.",
        r"(?i)(?:state_dict|ckpt\w*|checkpoint\w*)\[['\"]",
    ),
    Meaning(
        "KeyError",
        r"^'(?P<wrapper>module|_orig_mod|_fsdp_wrapped_module)\.(?P<key>[\w.]+)'$",
        "Take the names from the model inside its wrapper (DDP: `model.module`), or strip"
        " `{wrapper}.` from them: here they are read from the wrapped model, and looked up where"
        " they are plain, as `{key}`.",
    ),
    Meaning(
        "KeyError",
        r"^(?P<key>'[\w.]+\.(?:weight|bias)')$",
        "Take the script or the option for the kind of model that the file holds, or the right"
        " file: its weights are another model's, without {key}.",
    ),
    Meaning(
        "KeyError",
        r"^'(?!module\.)(?P<key>[A-Za-z_]+(?:\.\w+)*\.\d+(?:\.\w+)*)'$",
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
        "See the condition above this line under which it gives up, and what was printed just"
        " before: that is the reason.",
        r"^raise AssertionError(?:\(\))?$",
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
