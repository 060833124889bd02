"""Patterns of lines in tracebacks and of lines that end a message."""

from __future__ import annotations

import re

HEADER = re.compile(r"Traceback \(most recent call last\)")
FRAME = re.compile(r'[\s>]*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?$')
CHAINED = re.compile(
    r"(?:During handling of the above exception, another exception occurred"
    r"|The above exception was the direct cause of the following exception):?$"
)
INDENT = re.compile(r"\s*")
"""Indentation of a quoted traceback."""
IGNORED = re.compile(
    r"Exception ignored in|Error in atexit\._run_exitfuncs"
    r"|Exception in thread .* \(most likely raised during"
)
NOTEBOOK = re.compile(r"[A-Za-z_][\w.]* {2,}Traceback \(most recent call last\)$")
CELL = re.compile(
    r"(?:File )?(?P<file>(?:[A-Za-z]:)?[^\s:]+\.pyx?|<[^>]+>|(?:Cell|Input) In ?\[\d+\])"
    r"(?::(?P<line>\d+)|, line \d+)?(?:,? in (?:\w+\.)*(?P<function>\w+|<[^>]*>).*)?$"
)
"""A frame in IPython's format."""
ARROW = re.compile(r"-+> *(?P<line>\d+) (?P<source>.*)")
ENDS_MESSAGE = re.compile(
    r"Traceback \(most|={10}|-{10}|\*{5}|\[\d{4}-\d\d-\d\d[ T]|\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d"
    r"|[IWEF]\d{3,4} \d\d:|\[[IWEF]\d{0,4} |(?:ERROR|WARNING|INFO|DEBUG|CRITICAL)[: ]|\s*\d+%\|"
    r"|```|\$ \S|\{'(?:\w*loss|\w*runtime|eval_|grad_norm|learning_rate|epoch|rewards?)"
    r"|srun: |slurmstepd: |\[(?:safe-launch|HyperPodElasticAgent|default|FailurePolicy)\]"
    r"|Fatal Python error|terminate called|Exception ignored"
    r"|Process \S+:|wandb: |Time to load |Loading \w+:|[Ee]poch \d|[Ss]tep \d|INFO:|<frozen "
    r"|Set the environment variable HYDRA_FULL_ERROR|\+{1,3} [a-z_./][\w./-]*(?: |$)"
    r"|(?:\(\S+\) )?\[?[\w.-]+@[\w.-]+[: ~][^\s]*\]?[$#%>] |(?:\(\S+\) )?[$%] \S|>>> "
    r"|[\U0001f300-\U0001faff]"
)
"""Beginnings of lines that aren't part of an exception's message, as a shell's prompt or trace and
a program's pictograph."""
GOES_ON = re.compile(
    r"\s|E[A-Z0-9]\d{4}|Last error|\[ERROR\] \d{4}-|Exception raised from|ncclS|ncclI|Error"
    r"|\(?[A-Z0-9][a-z]*\)? [\w`'(]"
)
"""Beginnings of lines that continue a message after an empty line."""
OF_PYTHON = re.compile(
    r"\[Errno -?\d+\] [^:]+: '[^']*'(?: -> '[^']*')?$|No module named '[^']*'$"
    r"|(?:module )?'[\w.]+'(?: object)? has no attribute '\w+'$"
    r"|'\w+' object is not (?:callable|iterable|subscriptable)$|name '\w+' is not defined$"
    r"|[\w.<>]+\(\) got an unexpected keyword argument '\w+'$"
    r"|(?:list|tuple|string) index out of range$"
)
"""Python's messages, complete in one line."""
