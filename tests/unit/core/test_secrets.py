"""Secrets by name or format, and texts with secrets removed."""

from __future__ import annotations

import json

import pytest
from safe_launch.core.secret_formats import HIDDEN
from safe_launch.core.secrets import hidden, hidden_arguments, in_arguments, in_mapping, searched
from support.tables import table


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--hub_token", "abc", "--lr", "1"], ["--hub_token", HIDDEN, "--lr", "1"]),
        (["--hub_token=a=b"], [f"--hub_token={HIDDEN}"]),
        (["trainer.api_key=abc", "+db.password=1"], ["trainer.api_key=***", "+db.password=***"]),
        (["--token", "--lr", "1"], ["--token", "--lr", "1"]),
        (["--pad_token", "<pad>"], ["--pad_token", "<pad>"]),
        (["--url", "https://me:pw@host/x"], ["--url", f"https://{HIDDEN}@host/x"]),
        (["--index", "https://ghp_1@host"], ["--index", f"https://{HIDDEN}@host"]),
        (["--repo", "ssh://git@host/x"], ["--repo", "ssh://git@host/x"]),
        (["--extra", '{"api_key": "abcd"}'], ["--extra", '{"api_key": "***"}']),
        (["--db_pass", "correcthorse", "x"], ["--db_pass", HIDDEN, "x"]),
        (["--wandb_key=abc", "--pwd", "a"], [f"--wandb_key={HIDDEN}", "--pwd", HIDDEN]),
        (["--cookie", "a=b; c=d"], ["--cookie", HIDDEN]),
        (["-x", "AKIA" + "Q7ZK" * 4], ["-x", HIDDEN]),
        (["--pass_through", "all", "--eos_token", "</s>"],) * 2,
        (["--header", "Authorization: Bearer abcdef"], ["--header", f"Authorization: {HIDDEN}"]),
    ],
)
def test_command_lines(arguments: list[str], shown: list[str]) -> None:
    """The number of words and all other words are kept."""
    assert hidden_arguments(arguments) == tuple(shown)


def test_what_is_found_is_searched() -> None:
    """A short value isn't searched: it could be any word."""
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
        ("aws_secret_access_key = wJalr7/K+x", "aws_secret_access_key = ***"),
        ("password = getpass1()", "password = getpass1()"),
        ("secret = args.secret2", "secret = args.secret2"),
        ("the next token: is 12345678 it", "the next token: is 12345678 it"),
        ("tokenizer_name=llama-3-8b-base", "tokenizer_name=llama-3-8b-base"),
    ],
)
def test_texts(text: str, shown: str) -> None:
    """Known secrets and look-alikes are removed, in JSON as well."""
    assert hidden(text, ["planted-1"]) == shown
    assert json.loads(hidden(json.dumps([text]), ["planted-1"])) == [shown]


def test_a_secret_with_marks_is_found() -> None:
    """Its Python repr and its JSON spelling are found."""
    secret = 'pa"ss\\wörd'
    text = f"{secret} {[secret]}"
    assert hidden(text, [secret]) == "*** ['***']"
    assert json.loads(hidden(json.dumps([text]), [secret])) == ["*** ['***']"]


def test_passwords_in_urls_are_searched() -> None:
    """A script may print the password alone."""
    url = "http://me:planted@proxy:3128"
    assert [*in_arguments([url])] == [*in_mapping({"https_proxy": url})] == ["planted"]
    assert [*in_arguments(["https://host/x", "ssh://git@host/x"])] == []


def test_the_longer_of_two_secrets_is_hidden_whole() -> None:
    """One secret may be a prefix of the other."""
    assert hidden("abcdef-and-more abcdef", ["abcdef", "abcdef-and-more"]) == "*** ***"


def test_ordinary_values_are_not_searched() -> None:
    """They would blank ordinary text."""
    assert searched(["default", "disabled", "hunter2"]) == {"hunter2"}


SECRETS = (
    ("train.py --wandb_key abcdefghij --lr 1", "train.py --wandb_key *** --lr 1"),
    ("train.py --db_pass correcthorse", "train.py --db_pass ***"),
    ("train.py --pwd=correcthorse -x", "train.py --pwd=*** -x"),
    ("--kaggle_key 'correct horse' --lr 1", "--kaggle_key '***' --lr 1"),
    (
        "cmd = ['python', '--hub_token', 'abcdef', '--lr', '1']",
        "cmd = ['python', '--hub_token', '***', '--lr', '1']",
    ),
    ("export AZURE_STORAGE_KEY=ab+/cdEF12==", "export AZURE_STORAGE_KEY=***"),
    (
        "DB_PASS=correcthorse SSHPASS=battery GITHUB_PAT=staple",
        "DB_PASS=*** SSHPASS=*** GITHUB_PAT=***",
    ),
    ("first\nwandb_key: 0a1b2c3d\nnext: 1", "first\nwandb_key: ***\nnext: 1"),
    ("Namespace(db_pwd='p\"ss word', lr=1)", "Namespace(db_pwd='***', lr=1)"),
    ("X-Api-Key: 0a1b2c3d", "X-Api-Key: ***"),
    ("machine h login user password 0123abcdef", "machine h login user password ***"),
    ("Endpoint=a;AccountKey=ab12+/cd==;Suffix=b", "Endpoint=a;AccountKey=***;Suffix=b"),
    ("Incorrect API key: 0a1b2c3d", "Incorrect API key: ***"),
    ("token abcdef0123456789abcdef01 is invalid", "token *** is invalid"),
    ("dsn host=h password=hunter22 dbname=x", "dsn host=h password=*** dbname=x"),
    ("{'kaggle': {'key': 'a', 'api_key': 'abcd'}}", "{'kaggle': {'key': 'a', 'api_key': '***'}}"),
)
READABLE = """\
token 128009 is out of range
IndexError: token 12800999 is out of range for a vocabulary of 128256
pad_token=<|finetune_right_pad_id|> and pad_token="<pad>" and eos_token='</s>'
max_new_tokens=512000 num_tokens: 1234567 token_id=128009
token=1280099 and token: 1280099 and token id 1280099
--eos_token "</s>" --bpe_pad_token "[PAD512]" --pad_token pad_0001
KeyError: 'model.embed_tokens'
KeyError: 'model.layers.0.self_attn.key_proj.weight'
key_padding_mask=mask_0001 key_states: float32x8 past_key_values=None12
size mismatch for token_embeddings: torch.Size([32000, 4096])
unexpected key 'layers.0.weight12' in state_dict
key: value_0001 primary_key=id_000001 sort_key=column_0001
forward_pass=step_0001 --pass_through all_0001 bypass=route_0001 compass=north_0001
monkey=banana_0001 tokenizer=llama-3-8b-base tokenizer: llama3-8b-instruct
token=args.hub_token2, api_key=os.environ["KEY_1"], token=self.token_v2
token = tokens[0] if tokens else None; password=getpass.getpass("key1: ")
usage: train.py [-h] [--hub_token HUB_TOKEN] [--wandb_key WANDB_KEY]
train.py: error: argument --hub_token: expected one argument
the option --use_auth_token requires login first
the secret is out; a password is required; cookies are good; authorization failed
PWD=/home/me/run_0001 OLDPWD=/home/me2
pattern=layer_0001 patch_size=1400001 path=/a/b_0001
TOKENIZERS_PARALLELISM=false SSH_AUTH_SOCK=/tmp/ssh-1/agent.1
author=somebody_0001 signature: forward_0001
token=None password=None HF_TOKEN=None secret=true API_KEY=$API_KEY2 WANDB_API_KEY=<your key 1>
HF_TOKEN_PATH=/root/.cache/token1 --credentials_file=/a/b1.json
token /opt/conda3/envs/training/lib/python3/site-packages/x.py, pass lib/python3/site/packages/x.py
before the backward pass: "The parameter has been reduced" and the next token: "hello"
export HF_TOKEN=hf_... on every node, `WANDB_API_KEY=...`, {"api_key": "sk-..."}
auto_wrap_policy=policy_0001, pass 1/300000 of the data"""


@table("text", SECRETS)
def test_secrets_in_texts(text: tuple[str, str]) -> None:
    """Secrets in command lines, files, variables, programs' output and JSON."""
    written, shown = text
    assert hidden(written) == shown
    assert json.loads(hidden(json.dumps([written]))) == [shown]
    assert json.loads(json.loads(hidden(json.dumps(json.dumps([written])))))[0].count("***")


@table("line", READABLE.splitlines())
def test_what_is_no_secret_stays(line: str) -> None:
    """A model's tokens, table keys, code, options without a value, prose."""
    assert hidden(line) == line
    assert json.loads(hidden(json.dumps([line]))) == [line]


def test_the_next_line_is_no_value() -> None:
    """A word at a line's end has no value."""
    text = "it needs a password\nRuntime2Error was raised\nin the pass\nabcdef0123456789abcdef01"
    assert hidden(text) == text


NAMES = (
    "key",
    "token",
    "_token",
    "token_",
    "secret_",
    "pat_",
    "a_key=",
    "token=",
    "token: ",
    "token\n",
)
BEFORE_VALUES = (
    "'token': '",
    '"token": "',
    "token='\\",
    "token \\\\",
    "--token ",
    "--token 'a', '",
    "api key ",
)


@pytest.mark.parametrize(
    "part", [*NAMES, *BEFORE_VALUES, "a", "\\n", '"', "\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}"]
)
def test_a_text_of_names_is_read_in_linear_time(part: str) -> None:
    """A restart at each of these names would take minutes."""
    for text in (part * (2**18 // len(part)), "--token" + part * (2**18 // len(part))):
        hidden(text)
        hidden(f"{text}{' ' * 2**18}")
