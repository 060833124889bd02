"""What is a secret, by its name or its looks, and texts without it."""

from __future__ import annotations

import json

import pytest
from safe_launch.core.secrets import (
    HIDDEN,
    hidden,
    hidden_arguments,
    in_arguments,
    in_mapping,
    is_secret_name,
    searched,
)
from support.tables import table

NAMES = """
hub_token token hf_token HF_TOKEN push_to_hub_token use_auth_token api-token accessToken
auth_token GITHUB_TOKEN HUGGING_FACE_HUB_TOKEN wandb_api_key WANDB_API_KEY api_key apikey
openai.api_key AWS_SECRET_ACCESS_KEY AWS_ACCESS_KEY_ID password db_password PGPASSWORD
MYSQL_PASSWD client_secret secret my_secret_value credentials Authorization private_key
ssh_passphrase SLURM_JWT SAFE_LAUNCH_SECRET
"""
PLAIN = """
tokenizer tokenizer_name tokens max_tokens num_tokens pad_token eos_token bos_token unk_token
special_tokens image_token num_token token_id eos_token_id token_type_ids token_level_loss
max_new_tokens TOKENIZERS_PARALLELISM secret_file token_path credentials_file password_file
key text_key key_proj keys PWD SSH_AUTH_SOCK author MASTER_PORT passes learning_rate
"""


@table("name", NAMES.split())
def test_names_of_secrets(name: str) -> None:
    """However it is spelt."""
    assert is_secret_name(name)


@table("name", PLAIN.split())
def test_other_names(name: str) -> None:
    """A model's tokens, places, keys of columns."""
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--hub_token", "abc", "--lr", "1"], ["--hub_token", HIDDEN, "--lr", "1"]),
        (["--hub_token=a=b"], [f"--hub_token={HIDDEN}"]),
        (
            ["trainer.api_key=abc", "+db.password=1"],
            ["trainer.api_key=***", "+db.password=***"],
        ),
        (["--token", "--lr", "1"], ["--token", "--lr", "1"]),
        (["--pad_token", "<pad>"], ["--pad_token", "<pad>"]),
        (["--url", "https://me:pw@host/x"], ["--url", f"https://{HIDDEN}@host/x"]),
        (["--index", "https://ghp_1@host"], ["--index", f"https://{HIDDEN}@host"]),
        (["--repo", "ssh://git@host/x"], ["--repo", "ssh://git@host/x"]),
        (["--extra", '{"api_key": "abcd"}'], ["--extra", '{"api_key": "***"}']),
        (["--header", "Authorization: Bearer abcdef"], ["--header", f"Authorization: {HIDDEN}"]),
    ],
)
def test_command_lines(arguments: list[str], shown: list[str]) -> None:
    """As many words as before; the others as they were."""
    assert hidden_arguments(arguments) == tuple(shown)


def test_what_is_found_is_searched() -> None:
    """A short value may be any word."""
    arguments = ["--hub_token", "hf_planted", "--password=hunter2", "--secret", "a", "--token"]
    assert [*in_arguments(arguments)] == ["hf_planted", "hunter2", "a"]
    assert searched(in_arguments(arguments)) == {"hf_planted", "hunter2"}
    document = {"HF_TOKEN": "t", "a": {"b": [{"api_key": "k"}]}, "pad_token": "p", "token": 1}
    assert [*in_mapping(document)] == ["t", "k"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("it is planted-1, again planted-1", "it is ***, again ***"),
        ('login(token="abcd")', 'login(token="***")'),
        ("{'hub_token': 'abcd', 'lr': '1e-3'}", "{'hub_token': '***', 'lr': '1e-3'}"),
        ("train.py --hub_token hf_1234567 --lr 1e-4", "train.py --hub_token *** --lr 1e-4"),
        ("GET https://h/x?token=abc12345&b=1", "GET https://h/x?token=***&b=1"),
        ("login(token=args.hub_token)", "login(token=args.hub_token)"),
        ("the next token: is 12345678 it", "the next token: is 12345678 it"),
        ("tokenizer_name=llama-3-8b-base", "tokenizer_name=llama-3-8b-base"),
    ],
)
def test_texts(text: str, shown: str) -> None:
    """What is known, and what looks like a secret; in JSON as well."""
    assert hidden(text, ["planted-1"]) == shown
    assert json.loads(hidden(json.dumps([text]), ["planted-1"])) == [shown]


def test_a_secret_with_marks_is_found() -> None:
    """As Python shows it, and as it is spelt in JSON."""
    secret = 'pa"ss\\wörd'
    text = f"{secret} {[secret]}"
    assert hidden(text, [secret]) == "*** ['***']"
    assert json.loads(hidden(json.dumps([text]), [secret])) == ["*** ['***']"]


def test_passwords_in_urls_are_searched() -> None:
    """A script may print them apart."""
    url = "http://me:planted@proxy:3128"
    assert [*in_arguments([url])] == [*in_mapping({"https_proxy": url})] == ["planted"]
    assert [*in_arguments(["https://host/x", "ssh://git@host/x"])] == []
