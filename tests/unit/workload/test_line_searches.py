"""Searches in the user's files: the dummy loss is found, similar lines aren't."""

from __future__ import annotations

from pathlib import Path

import pytest
from safe_launch.core.script import SourceLocation
from safe_launch.workload.script.line_searches import spots
from support.tables import table


def found(text: str, folder: Path) -> tuple[SourceLocation, ...]:
    """The lines found by the search for reduced parameters."""
    path = folder / "train.py"
    path.write_text(text)
    return spots("parameter_reductions", [str(path)])


@pytest.mark.parametrize(
    "line",
    [
        "loss += sum(p.sum() for p in adapter.parameters()) * 0.0",
        "loss += sum([p.mean() for p in model.adapter.parameters()]) * 0",
        "loss += sum(torch.sum(p) for p in adapter.parameters()) * 0.0",
        "loss += sum((p * 0.0).sum() for _, p in adapter.named_parameters())",
        "loss += sum(p.pow(2).sum() for p in model.parameters() if p.requires_grad)",
        "for p in m.parameters(): loss = loss + 0.0 * p.sum()",
        "for _, p in m.named_parameters(): loss += torch.mean(p) * 0",
        "loss += torch.stack([p.abs().mean() for p in m.parameters()]).sum() * 0",
        "loss += sum(p.sum() for m in adapters for p in m.parameters()) * 0",
        "loss += 0.0 * sum(p.float().pow(2).sum() for p in m.parameters())",
        "return_ = x + sum(p.view(-1)[0] for p in self.parameters()) * 0.0; f(return_)",
        "y[0, 0] += 0 * sum(p.sum() for p in expert.parameters())",
        "sum(p.sum() for p in model.parameters()).backward()",
        "for p in m.parameters():\n    if p.requires_grad: loss += p.sum() * 0",
    ],
)
def test_reduced_parameters_are_found(line: str, tmp_path: Path) -> None:
    """Comprehensions and loops over parameters that reduce each."""
    number, text = len(line.splitlines()) + 1, line.splitlines()[-1].strip()
    spot = SourceLocation(str(tmp_path / "train.py"), number, text)
    assert found(f"loss = 0\n{line}\n", tmp_path) == (spot,)


@table(
    "line",
    [
        "norm = sum(p.grad.norm() ** 2 for p in model.parameters())",
        "size = sum(p.numel() for p in model.parameters())",
        "total = sum(p.data.sum() for p in model.parameters())",
        "total = sum(p.detach().sum() for p in model.parameters())",
        "loss = sum(x.sum() for x in outputs)",
        "for p in model.parameters(): p.requires_grad = False",
        "total = sum(p.sum().item() for p in model.parameters())",
        "total = sum(p.norm() for p in model.parameters()).item()",
        "print(torch.stack([p.sum() for p in m.parameters()]).detach())",
        "with torch.inference_mode(), x: y = [p.sum() for p in m.parameters()]",
        "@torch.no_grad()\ndef norm(m): return sum(p.norm() for p in m.parameters())",
        "for x in m.buffers(): total += x.sum()",
        "for p in m.parameters(): total += other.sum()",
        "total = sum(p.sum() for p in m.parameters())\nprint(f'{total:,}', total == 1)",
        "def checksum(m): return sum(p.sum() for p in m.parameters())",
        "size = sum(p.view(-1).size(0) for p in m.parameters())",
        "zeros = sum((p == 0).sum() for p in model.parameters())",
        "bad = sum(torch.isnan(p).sum() for p in model.parameters())",
        "total = sum(float(p.norm()) for p in model.parameters())",
        "for n, p in m.named_parameters(): print(n, p.mean())",
        "for n, p in m.named_parameters(): print(f'{n}: {p.mean():.3f}')",
        "for n, p in m.named_parameters(): writer.add_scalar(f'norm/{n}', p.norm(), step)",
        "for n, p in m.named_parameters(): wandb.log({n: p.norm()})",
        "for p in m.parameters(): assert p.abs().sum() > 0",
        "with deepspeed.zero.GatheredParameters(ps): y = sum(p.sum() for p in m.parameters())",
        "with torch.set_grad_enabled(False): y = sum(p.sum() for p in m.parameters())",
        "with torch.no_grad(): total = sum(p.sum() for p in model.parameters())",
    ],
)
def test_look_alikes_arent(line: str, tmp_path: Path) -> None:
    """Gradient norms, counts, detached values, sums over outputs, logged statistics."""
    assert found(line, tmp_path) == ()


def test_every_line_is_told_once_and_in_its_own_words(tmp_path: Path) -> None:
    """A chain of calls is one line; a multi-line reduction is found at its place."""
    text = (
        "def forward(self, x):\n"
        "    dummy = 0.0\n"
        "    for parameter in self.adapter.parameters():\n"
        "        scaled = parameter.pow(2).sum()\n"
        "        dummy = dummy + scaled\n"
        "    return self.head(x) + 0.0 * sum(\n"
        "        one.sum()\n"
        "        for one in self.adapter.parameters()\n"
        "    )\n"
    )
    path = str(tmp_path / "train.py")
    assert sorted(found(text, tmp_path), key=lambda spot: spot.line) == [
        SourceLocation(path, 4, "scaled = parameter.pow(2).sum()"),
        SourceLocation(path, 7, "one.sum()"),
    ]


def test_files_that_cant_be_read_are_skipped(tmp_path: Path) -> None:
    """A missing file, a syntax error or binary content give no result and no error."""
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "binary.py").write_bytes(b"\0\xff")
    names = [str(tmp_path / name) for name in ("absent.py", "broken.py", "binary.py")]
    assert spots("parameter_reductions", names) == ()
