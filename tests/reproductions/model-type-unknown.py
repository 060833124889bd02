"""The checkpoint is of an architecture that this transformers doesn't know."""

import json
import sys
from pathlib import Path

from transformers import AutoConfig, AutoModelForCausalLM

RANKS = 1

known = "--advised" in sys.argv
sizes = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
kind = "llama" if known else "llama_of_next_year"
Path("config.json").write_text(json.dumps({"model_type": kind, "num_attention_heads": 2, **sizes}))
AutoModelForCausalLM.from_config(AutoConfig.from_pretrained("."))
