"""Interprets errors of input and output: the operating system's, storage's, HTTP services'."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .step import Case, Step

WORDS = {
    r"Transport endpoint is not connected|Stale (?:NFS )?file handle|Host is down": (
        "The file system that holds the path is gone or mounted anew: mount it again, and"
        " start from the newest checkpoint; write to a local disk meanwhile."
    ),
    r"(?<!Function )\bInput/output error|\bRemote I/O error": (
        "The disk or the network file system failed: see `dmesg -T` on this node, and use"
        " another node or disk."
    ),
    r"No space left on device|Disk quota exceeded": (
        "Free space where it writes, or write elsewhere: `df -h`, `df -i` and `quota` show what"
        " is full (checkpoints, caches, /tmp, /dev/shm)."
    ),
    r"No locks available|database is locked|SQLite database: locking|flock\b.*(?:fail|not )": (
        "Move the file to a local disk, such as /tmp, for each node: its file system can't"
        " lock it, or another process holds it. Caches move by `TRITON_CACHE_DIR`, `HF_HOME`,"
        " `XDG_CACHE_HOME`, MIOpen's by `MIOPEN_USER_DB_PATH` and `MIOPEN_CUSTOM_CACHE_DIR`."
    ),
    r"Read-only file system": (
        "Write to another folder, as this one's disk is mounted read-only on this node or in this"
        " container: set the output and cache folders (`HF_HOME`, `TMPDIR`, `TRITON_CACHE_DIR`)."
    ),
    r"Too many open files": (
        "Raise the limit of open files before the launch (`ulimit -n 65535`), and use"
        " fewer loader processes."
    ),
    r"Resource temporarily unavailable|can't start new thread": (
        "Start fewer loader processes and threads: `export OMP_NUM_THREADS=1"
        " OPENBLAS_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false`. Or raise the limit of processes"
        " that is reached (`ulimit -u`, the container's pids limit)."
    ),
}
"""Steps by texts of the C library (strerror)."""


def system_error(case: Case) -> Step | None:
    """The step for an error of the operating system."""
    do = next((do for words, do in WORDS.items() if re.search(words, case.message)), None)
    return None if do is None else Step(do)


@dataclass(frozen=True, slots=True)
class Service:
    """A service used by trainings.

    Attributes:
        name: its name.
        words: pattern of its host or its client's files.
        login: how to log in.
        offline: how to run without it; empty if impossible.
    """

    name: str
    words: str
    login: str
    offline: str = ""


SERVICES = (
    Service(
        "the Hugging Face Hub",
        r"huggingface\.co|hf\.co|hf-mirror\.com|huggingface_hub/",
        "`hf auth login`, or HF_TOKEN of an account with access",
        "download once (`hf download`), then `export HF_HUB_OFFLINE=1` on every node",
    ),
    Service(
        "ModelScope",
        r"modelscope\.(?:cn|ai)|modelscope/",
        "`modelscope login --token ...`",
        "download once (`modelscope download`), and give the local folder",
    ),
    Service(
        "Weights & Biases",
        r"wandb\.ai|wandb/",
        "`wandb login`, or WANDB_API_KEY",
        "`export WANDB_MODE=offline`, and `wandb sync` afterwards",
    ),
    Service("Comet", r"comet\.(?:com|ml)", "COMET_API_KEY", "`export COMET_MODE=offline`"),
    Service(
        "MLflow",
        r"\bmlflow",
        "MLFLOW_TRACKING_TOKEN",
        "a local folder: `export MLFLOW_TRACKING_URI=file:./mlruns`",
    ),
    Service(
        "S3",
        r"amazonaws\.com|botocore|boto3|s3fs|s3://",
        "the role or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of the job",
    ),
    Service(
        "Google Cloud Storage",
        r"googleapis\.com|gcsfs|gs://",
        "the service account of the job (GOOGLE_APPLICATION_CREDENTIALS)",
    ),
    Service(
        "Azure Storage",
        r"blob\.core\.windows\.net|adlfs|azure\.core",
        "the job's connection string or identity",
    ),
    Service(
        "GitHub",
        r"github(?:usercontent)?\.com",
        "a token in GITHUB_TOKEN",
        "download it once, and give the local path",
    ),
    Service("the OpenAI API", r"(?:api|platform)\.openai\.com", "OPENAI_API_KEY"),
    Service(
        "the generation server (vLLM, SGLang)",
        r"(?:localhost|127\.0\.0\.1|0\.0\.0\.0|10\.\d+\.\d+\.\d+|192\.168\.\d+\.\d+|172\.(?:1[6-9]|2\d|3[01])\.\d+\.\d+):\d+|vllm_client|/v1/(?:completions|chat)",
        "the key that the server was started with",
    ),
)
"""Services by host and client."""
CODE = re.compile(
    r"\b(?P<code>40[0134689]|41[03]|42[29]|50[02346]|52\d) (?:Client|Server) Error"
    r"|\b(?:HTTP(?:/[\d.]+)?|status|status[_ ]code|StatusCode|error code|Error code|code|HTTP"
    r" Error|returned|response|[Ss]erver \d+ failed)\W{1,4}"
    r"(?P<plain>40[0134689]|41[03]|42[29]|50[02346]|52\d)\b"
    r"|\((?P<bracketed>40[0134689]|42[29]|50[0234])\)",
)
MEANINGS = {
    "400": (
        "{name} can't read the request: see the text that it sent with it; mostly an argument is"
        " wrong, or too long"
    ),
    "401": "{name} doesn't know who asks: give {login}",
    "403": "{name} knows who asks and refuses: ask for access there, and give {login}",
    "404": (
        "{name} has nothing under this address: correct the name or the revision; a private one"
        " also looks missing without {login}"
    ),
    "413": "what was sent is too large for {name}: send less at once",
    "429": (
        "too many requests to {name}: every rank asks. Let one rank ask, with {login}; wait, and"
        " try again"
    ),
}
SERVER = "{name} itself has failed: wait, and try again; the script is not at fault"
LOCAL_SERVER = "{name} itself has failed: read what it wrote at that time, in its log"
LOST = re.compile(
    r"RemoteDisconnected|Connection(?: aborted|Reset| reset| refused|Refused|Aborted)"
    r"|Server disconnected|Max retries exceeded|All connection attempts failed"
)
"""Messages of HTTP clients about lost connections."""
CLIENTS = ("openai.", "anthropic.", "httpx.", "aiohttp.", "requests.", "urllib3.")
"""Modules of HTTP clients' exceptions."""
OTHER = "{name} refused the request with {code}: its text has the reason"
NAMES = {
    "404": r"RepositoryNotFound|EntryNotFound|RevisionNotFound",
    "403": "GatedRepo",
    "401": "LocalTokenNotFound",
}
"""Client exceptions by HTTP code."""


OF_STORAGE = re.compile(
    r"An error occurred \((?P<code>\w+)\) when calling the (?P<call>\w+) operation"
)
"""The message of botocore's ClientError."""


@dataclass(frozen=True, slots=True)
class StorageError:
    """Error codes of a storage service, and the advice."""

    codes: str
    do: str


STORAGE = (
    StorageError(
        r"SlowDown|Throttl\w*|RequestLimitExceeded|TooManyRequests\w*|ServiceUnavailable"
        r"|InternalError|RequestTimeout",
        "Send fewer requests at once, and repeat failed ones with a longer back-off (`export"
        " AWS_RETRY_MODE=adaptive AWS_MAX_ATTEMPTS=10`): let few ranks write, or write to a local"
        " disk and upload afterwards",
    ),
    StorageError(
        r"AccessDenied\w*|InvalidAccessKeyId|SignatureDoesNotMatch|403",
        "Give the job a role or keys (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) that may do this",
    ),
    StorageError(
        r"Expired\w*|RequestExpired|TokenRefreshRequired",
        "Renew the job's credentials, which have run out; a role is renewed without you",
    ),
    StorageError(
        r"NoSuch\w*|404",
        "Correct the name of the bucket or the key, or create it: nothing is there",
    ),
    StorageError(
        r"\w*Region\w*|\w*LocationConstraint\w*|AuthorizationHeaderMalformed|PermanentRedirect",
        "Set the region of the bucket: `export AWS_REGION=... AWS_DEFAULT_REGION=...`",
    ),
)
"""Advice by S3's error codes (docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html)."""


def storage_error(case: Case) -> Step | None:
    """Advice on an error code of S3 and services like it."""
    match = OF_STORAGE.search(case.message)
    if match is None:
        return None
    do = next((error.do for error in STORAGE if re.fullmatch(error.codes, match["code"])), None)
    if do is None:
        return None
    return Step(f"{do} ({match['code']} upon {match['call']}).")


def connection_lost(case: Case) -> Step | None:
    """Advice on a connection closed or refused by an HTTP server."""
    files = " ".join(frame.file for frame in case.frames)
    words = f"{case.kind} {case.message}"
    is_http = case.raised.exception.startswith(CLIENTS) or re.search(r"/(?:requests|httpx)/", files)
    if not is_http or LOST.search(words) is None:
        return None
    service = _service(words, files)
    if service is not None and service.offline:
        return Step(
            f"This node didn't reach {service.name}, or lost the connection: see its network and"
            f" proxy, and try again. Without it: {service.offline}."
        )
    name = service.name if service else "the server that it asked"
    return Step(
        f"Read the log of {name}, at the same time: it has ended, closed the connection, or was"
        " never started. Start it again before the training, and see that its host and port are"
        " the ones that are asked."
    )


def _service(*places: str) -> Service | None:
    """The service named in the first matching text."""
    services = (
        service for place in places for service in SERVICES if re.search(service.words, place)
    )
    return next(services, None)


def http_error(case: Case) -> Step | None:
    """The meaning of an HTTP error with advice on its service."""
    text = f"{case.kind} {case.message}"
    match = CODE.search(case.message)
    code = next(filter(None, match.groups()), "") if match else ""
    code = code or next(
        (number for number, names in NAMES.items() if re.search(names, case.kind)), ""
    )
    if not code:
        return None
    files = " ".join(frame.file for frame in case.frames)
    service = _service(text, files)
    is_http = (
        service is not None
        or "http" in text.lower()
        or re.search(r"requests|httpx|aiohttp|urllib", f"{files} {case.raised.exception}")
        or case.raised.exception.startswith(CLIENTS)
    )
    if not is_http:
        return None
    service = service or Service("the server", "", "the key that it wants")
    meaning = (
        (SERVER if service.offline else LOCAL_SERVER)
        if code.startswith("5")
        else MEANINGS.get(code, OTHER)
    )
    do = meaning.format(name=service.name, login=service.login, code=code)
    if service.offline and code in ("429", "500", "502", "503", "504"):
        do += f". Without it: {service.offline}"
    return Step(f"{do[0].upper()}{do[1:]}.")
