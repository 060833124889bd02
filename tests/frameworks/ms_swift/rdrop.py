"""A plugin for ms-swift, as its users write them: R-Drop, two forward passes that should agree."""

from swift.trainers import Seq2SeqTrainer, TrainerFactory
from torch.nn.functional import kl_div


class RDropTrainer(Seq2SeqTrainer):
    """The mean of two losses, and how far the two passes' predictions are apart."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        again = {**inputs}
        loss, first = super().compute_loss(model, inputs, True, num_items_in_batch)
        other, second = super().compute_loss(model, again, True, num_items_in_batch)
        apart = kl_div(
            first.logits.log_softmax(-1),
            second.logits.log_softmax(-1),
            reduction="batchmean",
            log_target=True,
        )
        loss = (loss + other) / 2 + 0.01 * apart
        return (loss, first) if return_outputs else loss


TrainerFactory.TRAINER_MAPPING["causal_lm"] = "rdrop.RDropTrainer"
