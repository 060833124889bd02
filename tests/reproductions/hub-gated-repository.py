"""The model's repository on the Hub is open only to those who were granted access."""

import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

RANKS = 1
FRESH = True


class Hub(BaseHTTPRequestHandler):
    """Answers as the Hub does to somebody without access."""

    def do_HEAD(self) -> None:
        """Every file is behind the gate."""
        self.send_response(401)
        self.send_header("X-Error-Code", "GatedRepo")
        self.send_header("X-Error-Message", "Access to this model is restricted.")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_HEAD  # noqa: N815


def main(name: str) -> None:
    """Loads a model by its name or from a folder."""
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

    if name == ".":
        sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
        config = LlamaConfig(vocab_size=32, num_hidden_layers=1, **sizes)
        LlamaForCausalLM(config).save_pretrained(name)
    AutoModelForCausalLM.from_pretrained(name)


server = HTTPServer(("127.0.0.1", 0), Hub)
threading.Thread(target=server.serve_forever, daemon=True).start()
os.environ.update(HF_ENDPOINT=f"http://127.0.0.1:{server.server_port}", HF_HOME=os.getcwd())
main("." if "--advised" in sys.argv else "somebody/gated-model")
