"""Custom resource manifests against the projects' own schemas.

Both the first and the last version in docs/using/kubernetes.md are checked.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from safe_launch.cli import guarded
from safe_launch.commands.cluster_files import VARIANTS
from support.stacks import ROOT

SCHEMAS = sorted((ROOT / "tests" / "fixtures" / "crds").glob("*.json.gz"))
OPTIONS = (
    (),
    ("--gpus-per-node=0", "--cpus=4", "--memory=8Gi"),
    ("--restricted", "--queue=team", "--cpus=64"),
)


def strict(schema: Any) -> Any:
    """The schema, with unknown fields as errors: the API server would drop them."""
    if isinstance(schema, list):
        return [strict(member) for member in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: strict(member) for name, member in schema.items()}
    if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        found.setdefault("additionalProperties", False)
    return found


def definition(path: Path) -> dict[str, Any]:
    """A custom resource's kind, group and schemas."""
    return dict(json.loads(gzip.decompress(path.read_bytes())))


def of_kind(text: str, known: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The manifest's documents of a definition's kind."""
    found = [
        document
        for document in yaml.safe_load_all(text)
        if document["kind"] == known["kind"] and document["apiVersion"].startswith(known["group"])
    ]
    for document in found:
        metadata = document["metadata"]
        assert metadata.keys() <= {"name", "labels"}, "the schema leaves metadata to the server"
    return found


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_the_projects_schemas_take_the_manifests(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Manifests are valid as shipped and with every option."""
    known = definition(path)
    texts = [
        (ROOT / "scripts" / "kubernetes" / f"{variant}.yaml").read_text() for variant in VARIANTS
    ]
    for variant in VARIANTS:
        for options in OPTIONS:
            given = ("--image=x", "--nodes=3", f"--variant={variant}", *options)
            assert guarded(["template", "kubernetes", *given, "train.py"]) == 0
            texts.append(capsys.readouterr().out)
    found = [document for text in texts for document in of_kind(text, known)]
    assert len(found) == 1 + len(OPTIONS)
    for document in found:
        version = document["apiVersion"].rpartition("/")[2]
        schema = strict(known["schemas"][version])
        schema["properties"]["metadata"] = {"type": "object"}
        jsonschema.Draft202012Validator(schema).validate(document)


def test_a_wrong_field_is_noticed() -> None:
    """The schemas reject a misspelt field and a value of another type."""
    assert len(SCHEMAS) == 10
    for path in SCHEMAS:
        known = definition(path)
        for schema in known["schemas"].values():
            for wrong in ({"specs": {}}, {"spec": []}):
                with pytest.raises(jsonschema.ValidationError):
                    jsonschema.Draft202012Validator(strict(schema)).validate(wrong)
