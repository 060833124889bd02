"""Trainings that go wrong silently, each from a report, and their correct twins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.stacks import CURRENT, OLDER, SCENARIOS, Stack

SCRIPTS = (
    *("trains_wrongly.py", "trains_in_vain.py", "trains_askew.py", "trains_unseen.py"),
    *("trains_astray.py", "trains_strange.py", "trains_oddly.py", "trains_usually.py"),
    *("trains_commonly.py", "trains_mistakenly.py", "trains_wordily.py"),
    *("trains_forgetfully.py", "trains_drawn_apart.py"),
)
LINES = (*SCRIPTS, "says_words.py", "small_texts.py")
FAULTS = {
    "loaded_late": ("replicas", "before the first step"),
    "resized": ("trained", "that the model has no more"),
    "scheduled": ("schedule", "2 times for every step"),
    "grain": ("trained", "updates are lost"),
    "half": ("precision", "float16"),
    "ignored": ("data", "-100"),
    "undivided": ("data", "trains on the same samples"),
    "seeds": ("data", "different seeds"),
    "renewed": ("data", "the same batch"),
    "frozen": ("trained", "updates frozen weights"),
    "empty": ("saved", "are empty"),
    "alone": ("gradients", "aren't averaged"),
    "unwrapped": ("gradients", "aren't averaged"),
    "idle": ("gradients", "contributes nothing"),
    "reentered": ("gradients", "never reached"),
    "made_early": ("trained", "fully_shard has replaced all of its"),
    "too_short": ("schedule", "was over after"),
    "parted": ("trained", "tied weights were parted"),
}
"""The check that finds each, and its message."""
TWICE = {
    "unsynchronized": "aren't averaged",
    "around": "aren't averaged",
    "around_head": "aren't averaged",
    "misaligned": "in 1 of 2 passes",
}
"""Findings after the first step, as replicas differ, and again with the reason."""
FURTHER = {
    "cleared": ("trained", "are zero, step after step"),
    "never_cleared": ("gradients", "are never cleared"),
    "still_evaluating": ("trained", "in evaluation mode"),
    "evaluating_late": ("trained", "in evaluation mode"),
    "one_never_steps": ("trained", "has made no step"),
    "adapted_late": ("trained", "what it holds is frozen"),
    "split_apart": ("data", "divide different subsets"),
    "unscaled": ("precision", "no GradScaler"),
    "summed": ("divided", "2 backward passes"),
    "warming_up_trainer": ("schedule", "warms up for 500 steps"),
    "other_schedule": ("schedule", "has made no step"),
    "overruled": ("schedule", "is overruled"),
    "not_loaded": ("saved", "has loaded nothing"),
    "own_shard": ("saved", "a part of each weight"),
    "without_root": ("replicas", "call fully_shard"),
}
"""The same for the second script."""
ASKEW = {
    "stretched": ("schedule", "its total counts batches"),
    "by_batches": ("schedule", "its total counts batches"),
    "for_the_trainer": ("schedule", "the Trainer makes 12"),
    "rising_again": ("schedule", "raises the rate again"),
    "over_by_rank": ("schedule", "was over after 6 optimizer steps"),
    "cleared_early": ("gradients", "are cleared before they are used"),
    "cleared_in_accelerate": ("gradients", "are cleared before they are used"),
    "shifted": ("data", "shifted twice"),
    "never_ending": ("data", "doesn't learn to end a text"),
    "softmax_twice": ("trained", "the softmax of a softmax"),
    "without_decay": ("trained", "without weight decay, is empty"),
    "new_words": ("trained", "resize_token_embeddings has added"),
    "all_in_bfloat16": ("precision", "no copy in float32"),
    "sharded_grain": ("trained", "updates are lost"),
}
"""The same for the third."""
UNSEEN = {
    "best_kept": ("saved", "has changed with the model since"),
    "best_saved": ("saved", "has changed with the model since"),
    "beside_adapter": ("saved", "lacks 2 parameters trained beside it"),
    "thawed_later": ("trained", "as they were frozen when it was made"),
    "counted_twice": ("divided", "weights change every 4 passes"),
    "decayed_by_step": ("schedule", "lowers the rate by 10 % at every step"),
    "gathered_early": ("trained", "as FSDP2 gathered them"),
    "schedule_anew": ("resumed", "the learning rate starts over"),
}
"""The same for the fourth."""
ASTRAY = {
    "skipping": ("trained", "has skipped the last 25 steps"),
    "turned_nan": ("trained", "has made NaN of"),
    "gathered": ("data", "counts twice in a metric"),
    "left_over": ("gradients", "1 of them left over by the epoch before"),
    "clipped_early": ("gradients", "before the step's last backward pass"),
    "clipped_by_shard": ("trained", "by their own norm"),
    "streamed_twice": ("data", "reads the whole stream"),
    "parted_emptied": ("trained", "to_empty() has made two parameters"),
    "loaded_empty": ("resumed", "the optimizer's states aren't loaded"),
}
"""The same for the fifth."""
STRANGE = {
    "padding_trained": ("data", "the loss counts padding"),
    "targets_padded": ("data", "the loss counts padding"),
    "begun_twice": ("data", "begin with the bos_token twice"),
    "worst_kept": ("saved", "by its name that is the worst"),
    "labels_replaced": ("data", "replaces the samples' labels"),
    "adapter_frozen": ("trained", "the model's adapter is frozen"),
    "skipped_each_time": ("data", "is used for another epoch"),
    "named_alone": ("resumed", "the training starts over"),
    "loaded_early": ("resumed", "restores neither model nor optimizer"),
    "smoothed_apart": ("data", "label smoothing doesn't shift"),
    "norms_decayed": ("trained", "decays the weights of norm layers"),
    "clipped_by_none": ("trained", "it is given no parameters"),
    "count_ignored": ("divided", "the loss of Counting ignores num_items_in_batch"),
    "count_ignored_by_transformers": ("divided", "gradients are 4 times"),
    "head_left": ("trained", "as the loaded checkpoint lacks it, and frozen"),
    "prefixed": ("saved", "from_pretrained has loaded nothing"),
}
"""The same for the sixth."""
ODD = {
    "joined": ("data", "each with position_ids from 0"),
    "weights_dropped": ("data", "asks for weight, which"),
    "drawn_alike": ("data", "draws the same random values"),
    "adapted_again": ("trained", "a new one has replaced its weights"),
    "followed_alone": ("replicas", "each rank updates buffers"),
    "autocast_around": ("precision", "one autocast region goes on over 2 optimizer steps"),
    "gathered_features": ("gradients", "that all_gather collects have no gradient"),
}
"""The same for the seventh."""
USUAL = {
    "padded_metric": ("data", "counts 42 samples of 41"),
    "begun_again": ("resumed", "the optimizer starts over"),
    "followed_frozen": ("trained", "frozen layers change: body.1"),
    "loaded_halved": ("precision", "states are bfloat16 themselves"),
    "never_accumulated": ("divided", "steps is 4, but the Accelerator's is 1"),
    "views_joined": ("gradients", "that all_gather collects have no gradient"),
    "loaded_itself": ("saved", "all of its 5 tensors are the model's own"),
    "adapted_anew": ("trained", "the adapter is new: its configuration was read from"),
    "moved_in_part": ("trained", "updates are lost"),
    "average_left": ("trained", "aren't those of the last step"),
    "moved_by_epochs": ("schedule", "moves 2 steps at once"),
    "mean_function": ("divided", "loss_of ignores num_items_in_batch"),
}
"""The same for the eighth."""
COMMON = {
    "padding_masked": ("data", "the loss counts padding"),
    "padding_counted": ("data", "the loss counts padding"),
    "unshifted": ("data", "the labels aren't shifted"),
    "shifted_again": ("data", "each is the token after the next"),
    "times_ranks": ("divided", "a mean times the number of ranks"),
    "always_equal": ("trained", "the loss is the same in each"),
    "in_a_list": ("trained", "the model doesn't register"),
    "broadcast": ("trained", "the target of every sample"),
    "evaluated_training": ("trained", "is evaluated in training mode"),
    "scaler_left_out": ("trained", "still multiplied by the loss scale"),
    "ordered_apart": ("data", "each in another order"),
    "drawn_again": ("data", "the same random values in each step"),
    "gathered_in_vain": ("gradients", "the result of a torch.distributed.nn collective is dropped"),
    "merged_in_vain": ("saved", "merge_and_unload is dropped"),
    "summed_labels": ("divided", "the sum over all labels"),
    "sliced_apart": ("data", "ranks train on the same samples"),
    "skipped_anew": ("resumed", "skips batches of another order"),
    "stretched_function": ("schedule", "its total counts batches"),
    "saved_by_accelerate": ("resumed", "the optimizer starts over"),
    "accumulation_unstated": ("divided", "but the engine's is 1"),
    "cut_short": ("data", "texts are cut at 7 tokens"),
    "drawn_in_parts": ("trained", "initializes weights that ZeRO stage 3 has divided"),
}
"""The same for the ninth."""
MISTAKEN = {
    "taught_by_probabilities": ("trained", "kl_div isn't given logarithms of probabilities"),
    "without_logarithm": ("trained", "nll_loss isn't given logarithms of probabilities"),
    "masks_of_bytes": ("trained", "targets outside 0..1"),
    "weighed_unlike": ("divided", "weigh their tokens unlike"),
    "divided_by_all": ("divided", "counts those that are left out"),
    "evaluated_by_chance": ("trained", "dropout stays on in evaluation"),
    "taught_by_chance": ("trained", "a model that isn't trained, Classes"),
    "compared_by_chance": ("trained", "sees the same tokens without gradients"),
    "recomputed_by_chance": ("trained", "preserve_rng_state=False"),
    "attending_over_batch": ("trained", "a layer runs over the batch: MultiheadAttention"),
    "running_over_batch": ("trained", "a layer runs over the batch: LSTM"),
    "seeing_ahead": ("trained", "sees the words that it learns to predict"),
    "seeing_padding": ("trained", "sees nothing but padding"),
    "matched_twice": ("data", "a contrastive batch has samples twice"),
    "weighed_over_batch": ("trained", "a softmax runs over the batch"),
}
"""The same for the tenth."""
WORDY = {
    "never_ended": ("data", "has an end-of-text token, though"),
    "ended_otherwise": ("trained", "they end with <|turn|>"),
    "cut_unanswered": ("data", "all of them cut at 11 tokens"),
    "answers_begun": ("data", "the answers begin with the bos_token"),
    "prompts_ended": ("data", "the prompts end with the eos_token"),
    "packed_plainly": ("data", "rows hold several prompts with their answers"),
    "spare_rows": ("trained", "the labels have <tool>, which"),
    "started_twice": ("data", "the decoder starts twice"),
    "padding_pooled": ("data", "the classifier reads padding"),
    "padding_attended": ("data", "texts end in several pad tokens"),
    "positions_shifted": ("data", "are trained at shifted positions"),
    "experts_unbalanced": ("trained", "without their balancing loss"),
    "prompted_again": ("data", "learns to open another turn"),
    "thoughts_dropped": ("data", "the chat template drops parts of earlier answers"),
    "markers_unknown": ("data", "the tokenizer doesn't know <|im_end|>"),
    "another_tokenizer": ("data", "predicts worse than chance"),
    "named_in_vain": ("trained", "match no module of the model"),
    "merged_into_both": ("saved", "merge_and_unload changes the model"),
    "classes_as_numbers": ("trained", "two classes are learnt as numbers"),
}
"""The same for the eleventh."""
FORGETFUL = {
    "average_anew": ("resumed", "the average begins anew"),
    "scaler_anew": ("resumed", "the loss scale begins anew"),
    "random_anew": ("resumed", "random numbers begin anew"),
    "statistics_left": ("trained", "is evaluated with batch norm as it was made"),
    "average_in_half": ("precision", "an average of the model loses its updates"),
    "average_before_load": ("resumed", "begins at other weights than the model"),
    "copied_empty": ("saved", "a copy of the model, such as an average, is empty"),
    "renamed": ("saved", "have other names, such as layers.0.weight"),
    "overwritten": ("saved", "loaded weights are overwritten"),
    "schedules_overwritten": ("schedule", "overwrite each other"),
    "metric_as_epoch": ("schedule", "is given a metric as its epoch"),
    "plateau_turned": ("schedule", "lowers the rate while its metric gets better"),
    "stepped_by_epoch": ("schedule", "is stepped once an epoch, but made for 18 steps"),
    "rates_apart": ("replicas", "at different learning rates"),
    "rate_overruled": ("resumed", "the learning rate that the script gives AdamW is overruled"),
    "never_written": ("trained", "buffer is uninitialized: turn.inv_freq"),
    "frequencies_cast": ("precision", "turn.inv_freq, are in bfloat16"),
    "sharded_apart": ("replicas", "differ as fully_shard divides them"),
    "policy_alone": ("precision", "no copy in float32"),
    "rows_decayed": ("trained", "rows that are to stay are trained"),
}
"""The same for the twelfth."""
DRAWN = {
    "chosen_alone": ("data", "an evaluation of this rank's share of the samples alone"),
    "in_order": ("data", "come class by class"),
    "drawn_by_workers": ("data", "draw the same random values in each epoch"),
    "divided_again": ("data", "the data are divided twice"),
    "kept_by_workers": ("data", "has changed since in this process alone"),
    "shared_transform": ("data", "it holds for both"),
    "shared_samples": ("data", "are among those that the training's Subset has"),
    "seeded_again": ("data", "the seed is set anew"),
    "weighted_by_class": ("data", "it draws the first 4 alone"),
    "divided_by_ranks": ("divided", "a mean divided by the number of ranks"),
    "reduced_again": ("gradients", "summed over the ranks by all_reduce after"),
    "mixed_up": ("trained", "mixes the classes with the places"),
}
"""The same for the last."""
SINGLE = STRANGE | ODD | COMMON | MISTAKEN | WORDY | FORGETFUL | DRAWN
"""Those looked at in a process's first batches, which run alone."""
SHOWN = FAULTS | FURTHER | ASKEW | UNSEEN | ASTRAY | USUAL | SINGLE
LATE = (
    *("evaluating_late", "padded_metric", "evaluated_training", "evaluated_by_chance"),
    *("chosen_alone", "drawn_by_workers", "seeded_again", "stepped_by_epoch", "rates_apart"),
)
"""Those that come with an evaluation or a second epoch."""
ALIKE = (
    *("clipped_late", "warming_up", "never_averaged", "replaced", "on_plateau", "without_graph"),
    *("thawed", "scaled_apart", "unprepared", "adapted_twice", "cut_off"),
)
"""Others without a check to show; only their correct form runs here."""


def launched(
    folder: Path, *words: str, options: tuple[str, ...] = (), stack: Stack = CURRENT
) -> tuple[Any, str, int]:
    """A launch's findings, output, and exit code."""
    kinds = (FAULTS, {*FURTHER, *ALIKE}, ASKEW, UNSEEN, ASTRAY, STRANGE, ODD, USUAL, COMMON)
    kinds += (MISTAKEN, WORDY, FORGETFUL, DRAWN)
    place = next((place for place, kind in enumerate(kinds) if words[0] in kind), 0)
    script = SCENARIOS / SCRIPTS[place]
    launch = ("safe-launch", "--nproc=2", "--log-dir=runs", *options, script, *words)
    done = stack.run(*launch, cwd=folder)
    kept = list(folder.glob("runs/*/attempt-1/checks.json"))
    findings = json.loads(kept[0].read_text())["findings"] if kept else []
    return findings, done.stderr, done.returncode


@pytest.mark.parametrize("fault", SHOWN)
def test_faults(fault: str, tmp_path: Path) -> None:
    """One finding, by step 10, the save, or the end of schedule or run, with the script's line."""
    findings, said, code = launched(tmp_path, fault)
    assert code == 0, said[-4000:]
    check, words = SHOWN[fault]
    (found,) = findings
    said_of_it = f"{found['sentence']} {found['advice']}"
    assert (found["check"], words in said_of_it) == (check, True), found
    is_late = check == "saved" or "its total" in words or "was over" in words
    assert (found["step"] or 0) <= 10 or is_late or fault in LATE
    assert found["ranks"]
    assert found["where"].partition(":")[0].endswith(LINES)
    assert said.count(f"check {check}: ") == 1


@pytest.mark.parametrize("fault", TWICE)
def test_gradients_that_are_not_averaged(fault: str, tmp_path: Path) -> None:
    """Replicas differ, and the cause: both findings have both ranks' line."""
    findings, said, code = launched(tmp_path, fault)
    assert code == 0, said[-4000:]
    replicas, gradients = findings
    assert (replicas["check"], gradients["check"]) == ("replicas", "gradients")
    assert TWICE[fault] in gradients["sentence"], gradients
    assert (gradients["certain"], gradients["step"], gradients["ranks"]) == (True, 3, [0, 1])
    assert gradients["where"].partition(":")[0].endswith(LINES)


def test_micro_batches_that_are_lost(tmp_path: Path) -> None:
    """DeepSpeed 0.16.9 drops the second of three under offload; with one it is fine."""
    findings, said, code = launched(tmp_path, "offloaded", stack=OLDER)
    assert code == 0, said[-4000:]
    (found,) = findings
    assert (found["check"], found["certain"]) == ("gradients", True)
    assert "of 3 additions" in found["sentence"]
    assert "number 2 never reached" in found["sentence"]


@pytest.mark.parametrize(
    "faults",
    [
        (*FAULTS, *TWICE, "offloaded"),
        (*FURTHER, *ALIKE),
        (*ASKEW,),
        (*UNSEEN,),
        (*ASTRAY,),
        (*USUAL,),
    ]
    + [(fault,) for fault in SINGLE],
)
def test_the_same_done_right(faults: tuple[str, ...], tmp_path: Path) -> None:
    """None of them has a finding."""
    findings, said, code = launched(tmp_path, *faults, "--right")
    assert code == 0, said[-4000:]
    assert findings == []
    assert "check " not in said


@pytest.mark.parametrize("words", [(), ("--wrong",)], ids=["right", "wrong"])
def test_a_correction_that_trains_otherwise(words: tuple[str, ...], tmp_path: Path) -> None:
    """It is reverted by its third step, and the next remedy trains to the end."""
    script = SCENARIOS / "trains_otherwise.py"
    run = ("safe-launch", "--nproc=2", "--log-dir=runs", script, *words)
    done = CURRENT.run(*run, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "gradient_checkpointing: reentrant -> non_reentrant" in done.stderr
    kept = list(tmp_path.glob("runs/*/attempt-*/checks.json"))
    if not words:
        assert "attempt 2: succeeded" in done.stderr
        assert kept == []
        return
    assert "attempt 3: succeeded" in done.stderr
    assert "zero_stage: 2 -> 1" in done.stderr
    assert [path.parent.name for path in kept] == ["attempt-2"]
    (found,) = json.loads(kept[0].read_text())["findings"]
    assert (found["check"], found["certain"], found["step"]) == ("ours", True, 3)
    assert "trains_otherwise.py:" in found["where"]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("order", "the data starts over"),
        ("moments", "the optimizer starts over"),
        ("schedule", "the learning rate starts over"),
        ("accelerated", "the data starts over"),
        ("trained", "the data starts over"),
    ],
)
def test_trainings_that_begin_anew(fault: str, words: str, tmp_path: Path) -> None:
    """A resumed run is compared with the one that saved; correct ones have no finding."""
    launch = ("safe-launch", "--nproc=2", "--log-dir=runs", SCENARIOS / "resumes_wrongly.py", fault)
    for options, is_wrong in (((), False), (("--resume",), True), (("--resume", "--right"), False)):
        done = CURRENT.run(*launch, *options, cwd=tmp_path)
        assert done.returncode == 0, done.stderr[-4000:]
        assert done.stderr.count("check ") == is_wrong
        assert (f"check resumed: {words}" in done.stderr) == is_wrong
    (kept,) = tmp_path.glob("runs/*/attempt-1/checks.json")
    (found,) = json.loads(kept.read_text())["findings"]
    by_workers = fault == "schedule"
    about = (1, [0, 1]) if by_workers else (2, [0])
    assert (found["check"], found["step"], found["ranks"]) == ("resumed", *about)
    assert "resumes_wrongly.py:" in found["where"]


def test_strict_and_off(tmp_path: Path) -> None:
    """The first certain finding ends the run as a failure; off, there is no output."""
    for folder in ("strict", "off", "mute"):
        (tmp_path / folder).mkdir()
    _, said, code = launched(tmp_path / "strict", "around", options=("--check=strict",))
    assert code == 1
    assert "CheckError" in said
    for name, option in (("off", "--check=off"), ("mute", "--mute=replicas,gradients")):
        findings, said, code = launched(tmp_path / name, "around", options=(option,))
        assert (findings, code) == ([], 0), said[-4000:]
        assert "check " not in said
