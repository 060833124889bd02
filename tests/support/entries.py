"""Entries of a catalogue for tests."""

from __future__ import annotations

ENTRY = """\
---
id: bad-weather
title: the weather is bad
role: initiating
class: {kind}
signatures:
  - {{exception: RuntimeError, message: '^the weather is bad today$'}}
{more}
proof: [seen from the window]
---

## What happens

It rains.

## What to do

Take an umbrella.
"""


GOOD = """\
---
id: sample
title: a failure
role: initiating
class: preset
signatures:
  - {exception: RuntimeError, message: 'words of it'}
when: {deepspeed: ">=0.14"}
proves: {block_runs_twice: true}
forbids:
  - {zero_stage: 2, gradient_checkpointing: reentrant}
proof: [reported]
sources: []
---

## What happens

Something.

## What to do

Something else.
"""
