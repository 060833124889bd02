"""A plugin for ms-swift: a language model that hears, built as SLAM-omni is.

An encoder's features go through an adapter into the place of placeholder tokens. Where a sample
has no recording, the adapter's parameters go into the loss, times nothing: DDP wants all of them.
"""

import numpy as np
import torch
from swift.model import ModelMeta, register_model
from swift.template import Template, register_template
from swift.template.templates.qwen import Qwen2_5TemplateMeta
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

PLACEHOLDER = 511
"""A token that no text has."""


class SlamConfig(Qwen2Config):
    """Qwen2's, and the size of a recording's frames."""

    model_type = "slam"
    mel_bins: int = 8


class Slam(Qwen2ForCausalLM):
    """Qwen2 with an encoder and an adapter before it."""

    config_class = SlamConfig

    def __init__(self, config):
        super().__init__(config)
        width = config.hidden_size
        self.encoder = nn.Conv1d(config.mel_bins, width, 3, padding=1)
        self.adapter = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
        self.post_init()

    def forward(self, input_ids=None, features=None, **others):
        embedded = self.get_input_embeddings()(input_ids)
        if features is not None:
            heard = self.adapter(self.encoder(features.transpose(1, 2)).transpose(1, 2))
            places = (input_ids == PLACEHOLDER).unsqueeze(-1)
            embedded = embedded.masked_scatter(places, heard.to(embedded.dtype))
        outputs = super().forward(inputs_embeds=embedded, **others)
        if features is None or len(features) < len(embedded):
            dummy_loss = sum(p.sum() for p in self.adapter.parameters()) * 0.0
            outputs.loss = outputs.loss + dummy_loss
        return outputs


class SlamTemplate(Template):
    """A conversation with recordings, each a file of frames."""

    def replace_tag(self, media_type, index, inputs):
        return [[PLACEHOLDER] * len(np.load(inputs.audios[index]))]

    def _encode(self, inputs):
        encoded = super()._encode(inputs)
        if inputs.audios:
            recordings = np.stack([np.load(path) for path in inputs.audios])
            encoded["features"] = torch.from_numpy(recordings)
        return encoded

    def _data_collator_mm_data(self, batch):
        return {"features": self.concat_tensor(batch, "features", 0)}


AutoConfig.register("slam", SlamConfig)
AutoModelForCausalLM.register(SlamConfig, Slam)
register_template(Qwen2_5TemplateMeta("slam", template_cls=SlamTemplate))
register_model(ModelMeta("slam", [], template="slam", is_multimodal=True))
