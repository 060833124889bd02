"""Services' keys are recognized by their format anywhere; ordinary words aren't.

The keys are made up, with the services' lengths and letters.
"""

from __future__ import annotations

import json
from itertools import cycle, islice

import pytest
from safe_launch.core.secret_formats import FORMATS, HIDDEN, passwords_in_urls, without_formats
from safe_launch.core.secrets import hidden
from support.tables import table


def _random(letters: str, count: int) -> str:
    return "".join(islice(cycle(letters), count))


def _mixed(count: int) -> str:
    return _random("aZ3kQ9xB7mW1pL5", count)


def _hex(count: int) -> str:
    return _random("4fa09c7e1b", count)


def _capitals(count: int) -> str:
    return _random("Q7ZK2MWX5", count)


UUID = f"{_hex(8)}-{_hex(4)}-{_hex(4)}-{_hex(4)}-{_hex(12)}"
KEYS = (
    "hf_" + _random("aZkQxBmWpL", 34),
    "api_org_" + _random("aZkQxBmWpL", 34),
    *(f"gh{kind}_{_mixed(36)}" for kind in "pousr"),
    f"github_pat_{_mixed(22)}_{_mixed(59)}",
    *(f"{begin}-{_mixed(20)}" for begin in ("glpat", "gldt", "glrt", "glft", "glsoat")),
    f"glpat-{_mixed(27)}.01.{_hex(9)}",
    *(begin + _capitals(16) for begin in ("AKIA", "ASIA")),
    "AIza" + _mixed(35),
    "ya29." + _mixed(60),
    "GOCSPX-" + _mixed(28),
    f"xoxb-123456789012-1234567890123-{_mixed(24)}",
    f"xoxp-123456789012-123456789012-1234567890123-{_hex(32)}",
    f"xapp-1-A0123ABCDEF-1234567890123-{_hex(64)}",
    f"sk-{_mixed(20)}T3BlbkFJ{_mixed(20)}",
    f"sk-proj-{_mixed(74)}T3BlbkFJ{_mixed(74)}",
    f"sk-ant-api03-{_mixed(93)}AA",
    f"sk-or-v1-{_hex(64)}",
    f"sk-{_hex(32)}",
    f"sk_live_{_mixed(24)}",
    f"whsec_{_mixed(32)}",
    f"nvapi-{_mixed(64)}",
    f"npm_{_mixed(36)}",
    f"pypi-AgEIcHlwaS5vcmc{_mixed(90)}",
    f"dckr_pat_{_mixed(27)}",
    f"dapi{_hex(32)}",
    f"r8_{_mixed(37)}",
    f"gsk_{_mixed(52)}",
    f"pplx-{_mixed(48)}",
    f"SG.{_mixed(22)}.{_mixed(43)}",
    f"hvs.{_mixed(95)}",
    f"dop_v1_{_hex(64)}",
    f"LTAI{_mixed(20)}",
    f"glsa_{_mixed(32)}_{_hex(8)}",
    f"tskey-auth-{_mixed(16)}-{_mixed(32)}",
    f"lin_api_{_mixed(40)}",
    f"ms-{UUID}",
    f"SCT123456T{_mixed(24)}",
    f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0{_mixed(20)}.{_mixed(43)}",
    f"-----BEGIN RSA PRIVATE KEY-----\n{_mixed(64)}\n{_mixed(20)}==\n-----END RSA PRIVATE KEY-----",
    f"-----BEGIN OPENSSH PRIVATE KEY-----\n{_mixed(64)}\n{_mixed(64)}",
)
AROUND = (
    "{}",
    "is {} valid?",
    "'{}'",
    '["{}"]',
    "a={},b=1",
    "\x1b[32m{}\x1b[0m",
    "first\n{}\nsecond",
)


@table("key", KEYS)
def test_keys_of_services(key: str) -> None:
    """Alone, within a text, and in JSON; the text around them is kept."""
    for around in AROUND:
        assert without_formats(around.format(key)) == around.format(HIDDEN)
        inside = json.dumps({"message": around.format(key)})
        assert json.loads(without_formats(inside)) == {"message": around.format(HIDDEN)}


URLS = (
    ("https://me:pw@host/x", "https://***@host/x"),
    ("postgresql+psycopg2://u:p%40ss@db:5432/x", "postgresql+psycopg2://***@db:5432/x"),
    ("redis://:hunter2@cache:6379/0", "redis://***@cache:6379/0"),
    ("mongodb+srv://me:a@b@c@cluster0.x.net", "mongodb+srv://***@cluster0.x.net"),
    ("git+https://a1b2c3@git.host/x", "git+https://***@git.host/x"),
    ("http://me:pw@proxy:3128", "http://***@proxy:3128"),
    (f"https://{_hex(32)}@o1.ingest.sentry.io/2", "https://***@o1.ingest.sentry.io/2"),
    (
        "https://hooks.slack.com/services/T0123ABCD/B0123ABCD/" + _mixed(24),
        "https://hooks.slack.com/services/***",
    ),
    (
        "https://discord.com/api/webhooks/123456789012345678/" + _mixed(68),
        "https://discord.com/api/webhooks/***",
    ),
    (
        f"https://acme.webhook.office.com/webhookb2/{UUID}@{UUID}/IncomingWebhook/{_hex(32)}/{UUID}",
        "https://acme.webhook.office.com/webhookb2/***",
    ),
    (
        f"https://oapi.dingtalk.com/robot/send?access_token={_hex(64)}",
        "https://oapi.dingtalk.com/robot/send?access_token=***",
    ),
    (
        f"https://open.feishu.cn/open-apis/bot/v2/hook/{UUID}",
        "https://open.feishu.cn/open-apis/bot/v2/hook/***",
    ),
    (
        f"https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key={UUID}",
        "https://qyapi.weixin.qq.com/cgi-bin/webhook/***",
    ),
    (
        f"https://api.telegram.org/bot123456789:AA{_mixed(33)}/sendMessage",
        "https://api.telegram.org/bot***",
    ),
    ("https://hooks.zapier.com/hooks/catch/123456/abc1def", "https://hooks.zapier.com/hooks/***"),
    (
        f"https://b.s3.amazonaws.com/x?X-Amz-Credential=AKIA%2F1&X-Amz-Signature={_hex(64)}&a=1",
        "https://b.s3.amazonaws.com/x?X-Amz-Credential=***&X-Amz-Signature=***&a=1",
    ),
    (
        "https://a.blob.core.windows.net/c?sv=2022&sig=abc%2Bdef%3D&se=2026",
        "https://a.blob.core.windows.net/c?sv=2022&sig=***&se=2026",
    ),
    ("https://host/x?api_key=abcdef&b=1", "https://host/x?api_key=***&b=1"),
    ("SharedAccessSignature sr=x&sig=abc%3D&se=1", "SharedAccessSignature sr=x&sig=***&se=1"),
)


@table("url", URLS)
def test_urls(url: tuple[str, str]) -> None:
    """Passwords, webhook addresses, keys and signatures in a query."""
    written, shown = url
    assert without_formats(written) == shown
    assert without_formats(f"GET '{written}' failed") == f"GET '{shown}' failed"


HEADERS = (
    ("Authorization: Bearer abcdef", "Authorization: ***"),
    ('{"Authorization": "123456"}', '{"Authorization": "***"}'),
    ("{'Authorization': 'Basic bWU6cHc='}", "{'Authorization': '***'}"),
    ("got Bearer abcdef123", "got Bearer ***"),
    ("Cookie: session=abc; other=def", "Cookie: ***"),
    ("< Set-Cookie: id=abc; Path=/", "< Set-Cookie: ***"),
    ("sshpass -p hunter ssh n2", "sshpass -p *** ssh n2"),
    ("curl -s -u me:hunter https://h/x", "curl -s -u me:*** https://h/x"),
    ("docker login -u me -p hunter host", "docker login -u me -p *** host"),
    ("wandb login --relogin 0123abc", "wandb login --relogin ***"),
)


@table("header", HEADERS)
def test_headers_and_commands(header: tuple[str, str]) -> None:
    """Headers and commands in the form that programs print."""
    written, shown = header
    assert without_formats(written) == shown


READABLE = """\
see https://github.com/pytorch/pytorch/blob/main/torch/utils/hooks.py#L12
https://huggingface.co/meta-llama/Llama-3.1-8B/resolve/main/config.json?download=true
https://docs.github.com/en/webhooks/about-webhooks
ssh://git@host/x and git@github.com:a/b.git and tcp://10.0.0.1:29500
hf_hub_download, hf_quantizer, hf_model_name_or_path, HF_HOME, hf_transfer
task-1234567890123456789012345 of disk-0123456789012345678901234
sk-learn-contrib-extra-packages is missing
commit 3f786850e387550fdab836ed7e6dc881de23001b of torch
sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
GPU-1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed is lost
run `wandb login` or wandb login --relogin first; docker login is needed
the basic loop, a bearer of news, authorization failed for unknown reasons
{"Authorization": -1000000, "authorization": 1234567}
Cookie: none
npm_config, npm-check, SG.xyz, AKIA is a prefix, eyJ is how a token begins
docker run --user 1000:1000 image
-----BEGIN CERTIFICATE-----
/opt/app/src/hooks/use_training1.py and .git/hooks/pre-commit2
[rank0]: RuntimeError: CUDA error: device-side assert triggered
nccl_net_plugin key-value store, api_organization"""


@table("line", READABLE.splitlines())
def test_what_looks_like_no_secret(line: str) -> None:
    """Names, checksums, public pages and prose are kept."""
    assert without_formats(line) == line
    assert hidden(line) == line


def test_passwords_are_also_looked_for_as_they_are() -> None:
    """Scripts print them without URL encoding."""
    assert [*passwords_in_urls("redis://:p%40ss%20w@h")] == ["p%40ss%20w", "p@ss w"]
    assert [*passwords_in_urls("ssh://git@host https://token@host")] == []


BEGINS = ("://", "://a:b", "://a/hook/", "?key=", "&a=", "Cookie: a=", "curl -u ", "bearer ")
LOGINS = ("docker login ", "wandb login ", "wandb login -a ", "password =")
TEXTS = (
    *FORMATS,
    *BEGINS,
    *LOGINS,
    "eyJa.",
    "-----BEGIN A PRIVATE KEY-----\nVersion: a\n",
    "x@",
    "a:",
    " ",
)


@pytest.mark.parametrize("begin", TEXTS)
def test_a_text_of_begins_is_read_in_linear_time(begin: str) -> None:
    """A restart at each of these beginnings would take minutes."""
    for text in (begin * (2**18 // len(begin)), begin + "a1" * 2**17, begin + " " * 2**18):
        without_formats(text)
