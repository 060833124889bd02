"""Recognizes configurations and command lines that don't fit the code that reads them."""

from __future__ import annotations

import difflib
import re

from .refusals import OF_SHELL, REFUSALS
from .step import Case, Step, filled

UNKNOWN = re.compile(
    r"(?:unrecognized arguments|[Nn]o such option|[Uu]nknown option|unrecognized option):? "
    r"['\"]?(?P<option>--[\w-]+)"
)
ALIKE = 0.9
"""Similarity of names that differ by a letter, other than `--fp16` and `--bf16`."""
OPTION = re.compile(r"--[A-Za-z][\w-]+")
OF_LAUNCHERS = ("--local-rank", "--local_rank")
"""Options that a launcher adds; torch.distributed.launch has a dash since torch 2.0."""
OF_SLURM = re.compile(r"\bsinfo\b")
ASKED = re.compile(
    r"#SBATCH\s+(--(?:nodes|n?tasks|cpus|gpus|gres|mem|constraint|exclusive|partition)[\w-]*"
    r"(?:[= ]\S+)?)"
)
"""Requests for resources in a job script."""
OF_TASK = (
    r"SLURM_(?:PROCID|LOCALID|N?TASKS\w*|NPROCS|NODEID|N?NODES|NODELIST|JOB_?\w+|STEP\w*|GPUS\w*"
    r"|CPUS\w*|LAUNCH_\w+|SUBMIT_\w+|PROCESS_\w+|NODE_\w+)\Z"
)
SETTERS = (
    (OF_TASK, "`srun`"),
    (r"(?:LOCAL_)?RANK\Z|(?:LOCAL_)?WORLD_SIZE\Z|MASTER_(?:ADDR|PORT)\Z", "`torchrun`"),
)
"""Launchers by prefixes of the variables they set."""
SCRIPT = re.compile(r"\.(?:py|pyw)\Z|^<")
"""Names of files that Python can run."""


JOINED = re.compile(
    r"(?<=')(?!\S*\b(?:https?|s3|gs|hf|hdfs|file|oss|tos):/)(?:/[^':]*)?:(?P<last>/(?!/)[^':]+)(?=')"
)
"""A path that begins with a colon, or two paths joined by one, but no address."""
FOLDER = re.compile(r"\b[A-Z][A-Z0-9_]*(?:HOME|PATH|DIR|ROOT|CACHE)\b")
"""A variable for a folder."""


def configuration(case: Case) -> Step | None:
    """Names the faulty key, argument or variable, and the correction."""
    if (step := _variable(case) or _joined_paths(case) or _no_script(case)) is not None:
        return step
    for refusal in REFUSALS if case.kind else (*REFUSALS, *OF_SHELL):
        if match := re.search(refusal.words, case.message):
            groups = {name: text for name, text in match.groupdict().items() if text}
            groups.setdefault("key", groups.get("other", ""))
            asked = dict.fromkeys(ASKED.findall(case.around)) if OF_SLURM.search(refusal.do) else ()
            shown = f" The job script asks for `{' '.join(asked)}`." if asked else ""
            return Step(filled(refusal.do, groups) + shown)
    return None


def misspelt_option(case: Case) -> Step | None:
    """An option that the printed usage spells otherwise."""
    match = UNKNOWN.search(case.message)
    _, usage, options = case.around.rpartition("usage: ")
    if match is None or not usage:
        return None
    option = match["option"]
    known = dict.fromkeys(OPTION.findall(options.partition(match[0])[0]))
    alike = [each for each in known if each.replace("_", "-") == option.replace("_", "-")]
    hint = next(iter(alike or difflib.get_close_matches(option, known, 1, ALIKE)), "")
    if not hint or option in known:
        return None
    if option in OF_LAUNCHERS:
        return Step(
            "Declare both spellings in the script's parser,"
            ' `parser.add_argument("--local_rank", "--local-rank", type=int)`: the launcher passes'
            f" `{option}`, and the script knows `{hint}` alone. torchrun passes neither, for"
            " scripts that read LOCAL_RANK from the environment."
        )
    return Step(
        f"Write `{hint}` instead of `{option}`: this version's usage, which the log shows, spells"
        " it so. A newer version may know both."
    )


def _joined_paths(case: Case) -> Step | None:
    """A path with a colon, of a variable for one folder that was set like PATH."""
    match = JOINED.search(case.message)
    if match is None or case.kind not in ("FileNotFoundError", "NotADirectoryError", "OSError"):
        return None
    sources = (FOLDER.search(frame.source) for frame in reversed(case.frames))
    name = next((found[0] for found in sources if found), "")
    which = f"`{name}`" if name else "the variable that this path comes from"
    folder = match["last"].removesuffix("/bin/nvcc")
    return Step(
        f"Set {which} to one folder: `export {name or 'NAME'}={folder}`. It was set like PATH, with"
        f" a colon, so “{match[0]}” is taken for one path."
    )


def _variable(case: Case) -> Step | None:
    """An environment variable that is read but not set."""
    frame = case.frame
    name = case.message.strip("'\"")
    if case.kind != "KeyError" or not name.isidentifier() or frame is None:
        return None
    is_read = "environ[" in frame.source
    is_os = frame.file == "<frozen os>" or frame.is_of("/os.py")
    if not is_read and not (is_os and frame.function == "__getitem__"):
        return None
    setter = next((who for words, who in SETTERS if re.match(words, name)), None)
    if setter is not None:
        return Step(
            f"Start the script with {setter}, which sets `{name}` for each process: this one was"
            f" started without it. Else `export {name}=...` before the launch."
        )
    reader = frame if is_read or len(case.frames) < 2 else case.frames[-2]
    return Step(
        f"Set the variable `{name}` before the launch: `export {name}=...`, empty if nothing is to"
        f" be said. It is read in line {reader.line} of {reader.file}. On other nodes it has to be"
        " set as well."
    )


def _no_script(case: Case) -> Step | None:
    """A non-Python file run as the script, because its option's name is missing."""
    frame = case.frame
    if case.kind != "SyntaxError" or frame is None or SCRIPT.search(frame.file):
        return None
    return Step(
        f"Write the option's name before {frame.file} (as `--hostfile {frame.file}`), and the"
        " script after the options: Python was given this file to run as the script."
    )
