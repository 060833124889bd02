"""Recognizes options, variables and keys that hold a secret, by name."""

from __future__ import annotations

import re
from functools import lru_cache


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


LONGEST = 128
"""Characters of such a name, at most."""
ANYWHERE = re.compile(
    r"password|passwd|passphrase|passcode|secret|credential|authorization|apikey"
    r"|connectionstring|connstr|sharedaccesssignature|mnemonic"
)
"""Parts of names of secrets, wherever they stand in it."""
PLACES = _words("""
    file files path paths dir folder name names type types length len min max size count limit
    timeout ttl expiry expires enabled required provider manager backend store format scope
    policy version rotation days host port region label prompt callback class
""")
"""Last words of names that hold a secret's place or a property of it."""
ADDRESSES = frozenset(["url", "uri", "endpoint"])
"""As `PLACES`, but a webhook's address is itself the secret."""
SERVICES = _words("""
    account acr admin alibaba aliyun aliyuncs amazon anthropic artifactory aws azure backblaze
    baichuan baidu basic bitbucket bos ceph cerebras clearml client cloudflare cohere comet
    consumer cos dagshub dashscope database databricks datadog db deepl deepseek discord
    docker elastic elasticsearch elevenlabs email fireworks ftp gcp gcs gemini git github
    gitlab google grafana groq hf http huawei hub huggingface huggingfacehub imap jenkins jina
    jira jwt kafka kaggle labelbox langchain langfuse langsmith ldap login mail mailgun minio
    mistral mlflow modal modelscope mongo mongodb moonshot mq mysql nebius neptune newrelic
    nexus ngc npm nvapi nvidia obs openai openrouter opsgenie oss pagerduty perplexity pg
    pinecone postgres postgresql proxy pushover pypi qdrant rabbitmq redis registry replicate
    roboflow root runpod sendgrid sentry serpapi service sftp siliconflow slack smtp snowflake
    sql ssh stability storage stripe sudo swanlab tavily telegram tencent tensorboard together
    tos tracking twilio user vault vercel vnc volc volcengine voyage vpn wandb weaviate webdav
    wifi xai zhipu zhipuai
""")
"""Services, and those who log in to one: `wandb_key`, `db_pass`, `sshpass`, `redis_auth`."""
KEYS = SERVICES - {"user", "sql", "http", "hub", "email", "mail", "login"} | _words("""
    access aes api app application auth bot cipher crypto decryption deploy deployment encryption
    fernet gpg hmac host ingestion instrumentation integration license master pgp private rsa
    send session shared sign signing ssl subscription tls token write
""") - {"host", "session", "token", "write", "app"}
"""Words that make a following `key` a secret; most keys are names of columns."""
PIECES = re.compile(
    r"pad(ding)?|[beu]os|[be]o[ihv]|[es]ot|unk|sep|cls|mask|image|img|video|audio|vision|patch|special|num|max|min|per|"
    r"next|first|last|stop|start|end|begin|new|extra|added|n|placeholder|additional|separator|"
    r"think(ing)?|tool|system|assistant|prompt|response|generation|reward|step|"
    r"prev(ious)?|current|input|output|target|draft|sub|word|total|by|each|every|bad|forced|decoder|"
    r"encoder|speech|text|object|point|box|class|mem|memory|register|latent|query|context|doc|eot|"
    r"fim|prefix|suffix|middle|dist|distill(ation)?|layout|time|action|state|language|speaker|mel|rank|retrieval|ctx|noise|"
    r"pooler|summary|newline|column|row|function|observation|global|local|hidden|human|chat|turn|role|label|sentinel|invalid|unexpected|unknown"
)
"""Words that make a following `token` a piece of text: a model's tokens are no secrets."""
PASSES = _words("""
    a all and any backward backwards band best bw bwd compile compiler current custom decode
    decomposition did does dual each enable encode end epoch eval every extra filter final
    first forward forwards full fuse fused fusion fw fwd fx gate grad graph has high inductor
    inference initial is joint last lora loss low lowering mask max mean min multi must n next
    no normalization num one onnx optimization optimizer optional out par pattern per post pre
    prefill prev previous quality quantization reduce render run sanity save second should
    single skip step test tests the third this to train training transform two validation
    warmup will
""")
"""Words before a `pass` through a network, a graph or a test."""
PATTERNS = _words("""
    arg column dir exclude file filter glob ignore include key keep layer line match module
    name param path re regex regexp search skip split str string target token tokenizer url
    weight word
""")
"""Words before a `pat` that is a pattern, not a personal access token."""
_LAST = _words("""
    passwords creds cred cookie cookies otp totp jwt bearer sessionid webhook webhooks pwd
""")
"""Last words of names of secrets."""
_WORKING_DIRECTORY = ("PWD", "OLDPWD", "OLD_PWD")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_JOINED = re.compile(r"(.*)(token|key|pass|pwd|auth|cookie|pat)")
"""Two words written as one."""
_TOKENS = SERVICES | {"api", "auth", "access", "bearer", "refresh", "id", "session", "oauth"}


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether what an option, a variable or a key of this name holds is a secret."""
    name = name.strip("-_.")
    if len(name) > LONGEST or name in _WORKING_DIRECTORY:
        return False
    words = [word.lower() for word in _WORD.findall(name)]
    while len(words) > 2 and words[-1].isdigit():
        words.pop()
    if not words or words[-1] in PLACES:
        return False
    whole = "".join(words)
    if words[-1] in ADDRESSES:
        return "webhook" in whole
    if ANYWHERE.search(whole):
        return True
    pairs = list(zip(["", *words], words, strict=False))
    if any(word == "key" and before in KEYS for before, word in pairs):
        return True
    return _is_last(*pairs[-1], is_single=len(words) == 1)


def _is_last(before: str, last: str, *, is_single: bool) -> bool:
    """Whether a name that ends in these words is a secret's."""
    if last in _LAST:
        return True
    match last:
        case "token":
            return not PIECES.fullmatch(before)
        case "pass":
            return before not in PASSES and not before.isdigit()
        case "pat":
            return not is_single and before not in PATTERNS
        case "auth" | "sas" | "sk" | "ak":
            return before in SERVICES
    joined = _JOINED.fullmatch(last)
    if joined is None:
        return False
    known = {"token": _TOKENS, "key": KEYS | {"secret"}}.get(joined[2], SERVICES)
    return joined[1] in known


def is_strong(name: str) -> bool:
    """Whether the name of a secret means nothing else in prose, as a mere `token` may."""
    return name.strip("-_").lower() not in ("token", "pass", "cookie", "cookies", "secret", "pwd")
