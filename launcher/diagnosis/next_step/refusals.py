"""The words in which configurations' readers, shells and programs refuse their input, with advice.

In: nothing. Out: `REFUSALS` and `OF_SHELL`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refusal:
    """A configuration reader's error message."""

    words: str
    do: str


OLDER = (
    "the configuration is of another version than the code: take the one that comes with the"
    " installed version"
)
AS_MODULES = {
    "torchrun": "torch.distributed.run",
    "accelerate": "accelerate.commands.launch",
    "deepspeed": "deepspeed.launcher.runner",
}
"""Modules that Python runs as these programs."""
REFUSALS = (
    Refusal(
        r"\b(?i:invalid|unexpected|unknown|unrecognized|extra|unused|unsupported)"
        r" (?:\w+ ){0,2}?(?P<what>keys|columns|fields|arguments|options|parameters)\b[^:]{0,40}:"
        r" ?(?P<key>[\[{(]['\"].+[\]})])",
        "Remove those of {key} that don't belong there, or correct their names: the code takes no"
        " other {what} than those of its documentation.",
    ),
    Refusal(
        r"Key '(?P<key>[\w.]+)' is not in struct|^Missing key (?P<other>\w+)\s+full_key: ",
        f"The code reads `{{key}}`, which the configuration doesn't have: {OLDER}, or add the key"
        " (with Hydra `+...{key}=VALUE` on the command line).",
    ),
    Refusal(
        r"^['\"]?(?P<key>[\w.]+) is not a valid (?:config(?:uration)? )?key",
        "Delete `{key}` from the configuration, or correct its name: this version of the code"
        " doesn't know it.",
    ),
    Refusal(
        r"Missing mandatory value: (?P<key>[\w.]+)",
        "`{key}` must be given: write `{key}=VALUE` on the command line, or a value in the file.",
    ),
    Refusal(
        r"Interpolation key '(?P<key>[\w.]+)' not found",
        "The configuration refers to `{key}`, which isn't there: add it, or correct the reference.",
    ),
    Refusal(
        r"Could not override '(?P<key>[\w.]+)'",
        "The configuration has no `{key}`: correct its name; `+{key}=VALUE` adds a new one. Or"
        f" {OLDER}.",
    ),
    Refusal(
        r"\d+ validation errors? for (?P<of>\w+) (?:Value|Assertion) error, (?P<why>.+?)\.?"
        r" \[type=\w+",
        "{of} is refused as a whole: {why}. Change the setting or the file that this is about.",
    ),
    Refusal(
        r"\d+ validation errors? for (?P<of>\w+) (?P<key>[\w.\[\]-]+) (?P<why>.+?)"
        r" \[type=(?P<type>\w+)",
        "`{key}` of {of} is refused: {why}. Correct this key, or take the configuration of the"
        " installed version.",
    ),
    Refusal(
        r"^The '(?P<key>[\w.\[\]-]+[^']*)' distribution was not found and is required by"
        r" (?:th(?:is|e) |$)",
        'Install what is missing: `pip install "{key}"`.',
    ),
    Refusal(
        r"^The '(?P<key>[\w.\[\]-]+[^']*)' distribution was not found and is required by"
        r" (?P<by>[\w.-]+)",
        'Install what {by} requires, `pip install "{key}"`, or upgrade {by} (`pip install -U'
        " {by}`), if the version that you need is outside of that range.",
    ),
    Refusal(
        r"^['\"]?(?P<key>[\w.]+) is not in the (?:\S+ )?registry\b"
        r"|^['\"]*No object named '(?P<other>[\w.]+)' found in '\w+' registry",
        "Import the module that registers `{key}`, as the program hasn't: by `custom_imports` or"
        " `default_scope` in an MMEngine configuration, by an import in the script, or with the"
        " project's clone on PYTHONPATH (`pip install -e .`). Else its name is misspelt.",
    ),
    Refusal(
        r"unrecognized arguments: (?P<key>.+)$",
        "Correct {key}, or install the version of the program whose documentation has it, mostly a"
        " newer one: this version doesn't know it, and `--help` lists what it knows.",
    ),
    Refusal(
        r"^(?P<program>[\w.-]+?)(?<!\.py)(?:-cli| CLI(?: tool)?)?: error: (?:argument (?:sub-?)?"
        r"(?:commands?|cmd|\{\S+\}): )?invalid choice: '?(?P<value>[\w-]+)'? \(choose from"
        r" (?P<choices>.+?)\)",
        "Upgrade the package of {program} (mostly `pip install -U {program}`): the installed one"
        " has no command `{value}`, which came with a newer release, unless it is misspelt. It has"
        " {choices}.",
    ),
    Refusal(
        r"argument (?P<key>[\w/-]+): invalid choice: (?P<value>\S+) \(choose from"
        r" (?P<choices>.+?)\)",
        "Give {key} one of {choices}, instead of {value}.",
    ),
    Refusal(
        r"the following arguments are required: (?P<key>.+)$",
        "Give {key} on the command line: it has no default.",
    ),
    Refusal(
        r"Some keys are not used by the HfArgumentParser: \[(?P<key>[^\]]+)\]",
        "Correct {key} of the configuration, delete it, or install the version of the program whose"
        " documentation has it, mostly a newer one: this version doesn't know it.",
    ),
    Refusal(
        r"__init__\(\) got an unexpected keyword argument"
        r" '(?P<key>\w+)'.*(?:Config|Arguments)|^(?:\w*(?:Config|Arguments))\.__init__\(\) got an"
        r" unexpected keyword argument '(?P<other>\w+)'",
        "`{key}` isn't a setting of this version: it was renamed or removed, or came later. See"
        " its release notes and `help(...)` of the class.",
    ),
)
"""Readers' error messages; the first match counts."""


OF_SHELL = (
    Refusal(
        r"\b(?:srun|sbatch|salloc): \w+ option (?:-- )?['\"]?(?P<key>--(?:no-)?container-[\w-]+)",
        "Install Slurm's pyxis plugin, which adds {key}, and enroot on every node: name it in"
        " plugstack.conf and restart slurmd; then `srun --help` lists it. Else start the container"
        " within the job by another program, such as apptainer or docker.",
    ),
    Refusal(
        r"(?P<program>[\w.-]+): (?:[Ee]rror: )?\w+ (?:option|flag):?(?: --)?"
        r" ['\"]?(?P<key>[^\s'\"]+)",
        "Correct {key}, or leave it out: `{program} --help` lists the options of this version."
        " Options of the training come after its script's name.",
    ),
    Refusal(
        r"unknown (?:shorthand )?flag: (?P<key>.+)$",
        "Correct this option, or leave it out: the program doesn't know {key}; `--help` lists the"
        " options of this version. A container's command comes after the image's name.",
    ),
    Refusal(
        r"\bCPU binding outside of job step allocation|\b[Uu]nable to satisfy cpu bind request",
        "Add `--cpu-bind=none` to this `srun`, or start the script without the other `srun` around"
        " it (`unset SLURM_CPU_BIND SLURM_CPU_BIND_TYPE SLURM_CPU_BIND_LIST` before the inner one):"
        " it inherits a binding to CPUs that its step doesn't have.",
    ),
    Refusal(
        r"\bMunge encode failed\b",
        "Start munge on this node (`systemctl start munge`; a container needs its socket below"
        " /var/run/munge), since Slurm logs in by it. Or, on a machine outside of the cluster,"
        " start the script by `torchrun` instead of `srun`.",
    ),
    Refusal(
        r"\b(?:srun|sbatch|salloc): (?:error|fatal): Memory specification (?P<why>.+)$",
        "Ask for less memory (`--mem`, `--mem-per-cpu`, `--mem-per-gpu`), or leave it to Slurm: no"
        " node of the partition has as much (`sinfo -o '%P %D %m'` shows it in MB), or its limit is"
        " lower.",
    ),
    Refusal(
        r"\bsrun: error: Unable to create step for job (?P<job>\d+): Invalid generic resource",
        "Ask for the GPUs as the job's allocation has them, or ask for them there: `scontrol show"
        " job {job}` shows what it has (TresPerNode). `srun` within a job, and the job itself, need"
        " the same `--gres`.",
    ),
    Refusal(
        r"\b(?:srun|sbatch|salloc): (?:error|fatal): (?P<why>.+)$",
        "Ask Slurm for what it has: it refuses the job with “{why}”. `sinfo -o '%P %D %c %m %G %l'`"
        " shows each partition's nodes, CPUs, memory, GPUs and time limit, `sacctmgr show assoc"
        " user=$USER` your accounts.",
    ),
    Refusal(
        r"could not select device driver|nvidia-container-cli: ",
        "Let the container see the GPUs: `nvidia-smi` must work on the host, with the NVIDIA"
        " Container Toolkit installed and set up for docker (`nvidia-ctk runtime configure"
        " --runtime=docker`, then restart docker).",
    ),
    Refusal(
        r"nodes are available: (?P<why>.+?)\.?$",
        "Ask for what the cluster has free: {why}. `kubectl describe nodes` shows what each node"
        " has and who holds it; GPUs appear there only with the device plugin.",
    ),
    Refusal(
        r"slurmstepd: error: pyxis: ",
        "Read enroot's own lines beside it: it couldn't import or start the image. Mostly the"
        " image's name (`docker://REGISTRY#IMAGE:TAG`) or its login"
        " (`~/.config/enroot/.credentials`) is wrong, or the disk of enroot's cache is full.",
    ),
    Refusal(
        r"No matching distribution found for (?P<key>[\w.\[\]-]+)",
        "Ask for a version of {key} that exists for this Python and platform: `pip index versions"
        " {key}` lists them. Without any, the name is wrong, the Python too old or too new, or the"
        " package index isn't reached.",
    ),
    Refusal(
        r"Host key verification failed|Permission denied \(publickey|'ssh .* exit status 255\b",
        "Let the node that launches log in to all nodes over ssh without a password: `ssh-copy-id"
        " NODE`, then `ssh NODE true` once to accept its key. Or start a launcher on each node by"
        " `srun`, which needs no ssh (accelerate: `deepspeed_multinode_launcher: standard`;"
        " DeepSpeed: `--no_ssh --node_rank`). pdsh, mpirun and DeepSpeed's launcher start the other"
        " nodes over ssh, which refused the login. A container needs keys and an SSH server, too.",
    ),
    Refusal(
        r"There are not enough slots available",
        "Start fewer processes (`-np`), or give more slots: `slots=8` for each host in the"
        " hostfile, more tasks of the scheduler's job (`--ntasks`), or `--oversubscribe`.",
    ),
    Refusal(
        r"\bKilled signal terminated program (?P<program>[\w+-]+)",
        "Build with more memory, or with fewer jobs at once (`export MAX_JOBS=2`): the kernel has"
        " killed the compiler ({program}), mostly as the node's or the container's memory ran out.",
    ),
    Refusal(
        r"\bmake(?:\[\d+\])?: \*\*\* (?P<why>.+?)\.? +Stop\.",
        "Mend what make reports: “{why}”. If it runs in a package's folder, install that from its"
        " source (a clone, `pip install -e .`) or in a newer release, which has the files.",
    ),
    Refusal(
        r"line (?P<line>\d+): (?:syntax error|unexpected EOF)",
        "Correct the shell script in line {line} or before it: a quotation mark, a bracket, `fi` or"
        " `done` is missing there, or the file has Windows' line ends (`dos2unix`).",
    ),
    Refusal(
        r"(?:line )?\d+: (?P<key>-{1,2}[\w-]+\S*|\+{0,2}[\w.]+=\S*): (?:command )?not found",
        "Remove what stands behind the backslash of the line before, mostly a blank, or add the"
        " backslash that is missing there: the shell took the argument {key} for a command.",
    ),
    Refusal(
        r"(?P<file>\S+): (?:line )?(?P<line>\d+): .*(?:arithmetic|division by (?:zero|0)"
        r"|[Bb]ad substitution)",
        "Give {file} all its arguments and variables: what line {line} computes with is empty"
        " there, or no number.",
    ),
    Refusal(
        r"Could not consume arg: (?P<key>\S+)",
        "Correct {key}, or leave it out: the script takes its function's parameters as options"
        " (Python Fire), and has none of that name.",
    ),
    Refusal(
        r"(?P<host>[^\s()]+): (?:ba)?sh: (?:line \d+: )?(?:cd: )?(?P<key>/\S+): No such file",
        "Make {key} exist on {host} as on the first node, by a shared disk or the same folders:"
        " the launcher changes to its working folder on each node, and calls the same Python.",
    ),
    Refusal(
        r"\bsrun: (?:command )?not found",
        "This machine has no Slurm: start the script with `torchrun` instead of `srun`, or log in"
        " to a node of the cluster.",
    ),
    *(
        Refusal(
            rf"(?:^|[:/ ]){program}['\"]?: (?:(?:command )?not found|No such file or directory$)"
            rf"|\"{program}\": executable file not found",
            f"Start it as a module of the training's Python, `python -m {module}`: `{program}`"
            " isn't in PATH on this node or in this container. Else activate the environment or"
            ' load the module that has it. sudo resets PATH: `sudo env "PATH=$PATH" ...` keeps it.',
        )
        for program, module in AS_MODULES.items()
    ),
    Refusal(
        r"(?:^|: )(?P<key>[\w./-]+): (?:command )?not found",
        "`{key}` isn't installed here, or isn't in PATH: activate the environment or load the"
        " module that has it.",
    ),
    Refusal(
        r"(?P<key>[^\s:'\"]+)['\"]?: No such file or directory$",
        "{key} isn't there for this process: see `ls -l` on the node and in the container that"
        " failed; relative paths count from the working folder.",
    ),
    Refusal(
        r"(?P<key>[^\s:'\"]+)['\"]?: Permission denied$",
        "This user may not run or open {key}: see `ls -l`. A script is run with `bash` or `python`"
        " before its name, or after `chmod +x`.",
    ),
    Refusal(
        r"No such command ['\"](?P<key>[\w-]+)['\"]",
        "Another package's program of the same name was started, or an old version, which has no"
        " command `{key}`: `which -a` and its name show it. Reinstall the package that you mean, in"
        " an environment without the other.",
    ),
    Refusal(
        r"failed to create process",
        "Start it as a module, `python -m` (`python -m torch.distributed.run` for torchrun), or"
        " reinstall its package: Windows can't run the program's own file, which names a Python"
        " that has moved. Several processes run better on Linux or in WSL 2.",
    ),
)
"""Error messages of shells and programs about a wrong command line."""
