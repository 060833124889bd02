"""Lessons of a run for the next: when they apply, expire, and how they are stored."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from safe_launch.catalogue.reader import Catalogue
from safe_launch.commands.registry import run as cli
from safe_launch.core.errors import Refused
from safe_launch.core.request import LaunchRequest
from safe_launch.core.settings import Fact, Setting, Value
from safe_launch.core.workload import Known, Origin, Workload
from safe_launch.diagnosis.attempt import Attempt, Seen, Succeeded
from safe_launch.planning.plan import Change, Plan
from safe_launch.planning.planner import planned
from safe_launch.progress.board import Phase, RankProgress
from safe_launch.session.lessons import store
from safe_launch.session.lessons.earlier_runs import Learnt, circumstances, learnt
from safe_launch.session.lessons.learning import forget_disproved, keep
from safe_launch.session.lessons.lesson import Lesson
from support.attempts import ENTRIES, Ending, Run, fails, ran, sees, stopped_by, succeeds
from support.full_run import other_forms
from support.models import GIB, QWEN2_7B, model_of, workload_of
from support.other_user import OTHER, needs_root
from support.worlds import CURRENT, HARDWARE, OLDER, REQUEST, ZERO2, known_rules, rule, world

TWICE = "zero2-gradient-reduced-twice"
SECOND = {Setting.GRADIENT_CHECKPOINTING: "non_reentrant"}
THIRD = {Setting.ZERO_STAGE: 1}
WORLD = replace(world(ZERO2), versions=CURRENT)
CATALOGUE = Catalogue(ENTRIES, CURRENT)
SCRIPT = "from layers import Block\nimport argparse\n"
ARGUMENTS = ("--deepspeed", "zero2.json", "--lr=1e-4", "--depth", "4", "--out", "/scratch/a")


class Place:
    """A script of two files, and a lessons folder."""

    def __init__(self, folder: Path) -> None:
        self.lessons = folder / "lessons"
        self.environment = {store.SHARED: str(self.lessons)}
        self.run = folder / "run"
        self.run.mkdir()
        self.script = folder / "code" / "train.py"
        self.script.parent.mkdir()
        self.script.write_text(SCRIPT)
        (self.script.parent / "layers.py").write_text("class Block: ...\n")

    def request(self, *arguments: str) -> LaunchRequest:
        """A launch of the script."""
        return replace(REQUEST, script=str(self.script), arguments=arguments or ARGUMENTS)

    def learn(self, *endings: Ending, workload: Workload = WORLD) -> tuple[Run, list[str]]:
        """A run with these ends, and its messages about lessons."""
        run = ran(self.run, workload, *endings, request=self.request())
        return run, [*keep(run.state, WORLD, HARDWARE, "train-1", self.environment)]

    def known(self, *arguments: str, workload: Workload = WORLD) -> Learnt:
        """The lessons that the next launch loads."""
        request = self.request(*arguments)
        return learnt(request, workload, HARDWARE, CATALOGUE, self.environment)

    def overrides(self, *arguments: str, workload: Workload = WORLD) -> dict[Setting, Value]:
        """The next launch's initial changes."""
        found = self.known(*arguments, workload=workload)
        rules = (*known_rules(CURRENT), *found.constraints)
        plan = planned(REQUEST, found.workload, HARDWARE, rules, has_failed=found.has_failed)
        assert isinstance(plan, Plan)
        return dict(plan.overrides)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A script without lessons."""
    return Place(tmp_path)


@pytest.mark.parametrize(
    ("endings", "names", "changes"),
    [
        ((fails(TWICE), succeeds), [TWICE], SECOND),
        ((fails(TWICE, step=5), fails("odd", step=0), succeeds), [TWICE], THIRD),
        ((sees({"block_runs_twice": True}), succeeds), [""], SECOND),
    ],
    ids=["a failure", "a correction that failed", "what the workers showed"],
)
def test_the_second_launch_is_right_at_once(
    place: Place, endings: Sequence[Ending], names: list[str], changes: dict[Setting, Value]
) -> None:
    """It begins with the first run's last plan."""
    run, said = place.learn(*endings)
    assert run.plans[-1].overrides == changes
    assert len(said) == 1
    assert place.overrides() == changes
    found = place.known()
    assert [kept.lesson.failure for kept in found.lessons] == names
    (sentence,) = found.sentences(CATALOGUE)
    assert sentence.startswith("learnt in run train-1 on 2")


@pytest.mark.parametrize(
    "endings",
    [
        (fails("batch-lengths-differ"),),
        (fails(TWICE, step=1), fails("batch-lengths-differ", step=9)),
        (fails(TWICE), stopped_by(15)),
    ],
    ids=["fails", "fails corrected", "stopped"],
)
def test_nothing_is_learnt(place: Place, endings: Sequence[Ending]) -> None:
    """A correction counts only if the run then succeeded."""
    _, said = place.learn(*endings)
    assert said == []
    assert not place.lessons.exists()


@pytest.mark.parametrize("endings", [(succeeds,), (fails("npu-busy"), succeeds)])
def test_a_run_without_a_correction_leaves_its_versions(
    place: Place, endings: Sequence[Ending]
) -> None:
    """An upgrade may change the script's meaning; versions have no other effect."""
    _, said = place.learn(*endings)
    (path,) = place.lessons.iterdir()
    assert (said, path.stem.rpartition("-")[2]) == ([], "versions")
    found = place.known()
    assert (found.lessons, found.constraints, found.has_failed) == ((), (), False)
    assert found.workload.known == WORLD.known
    assert found.workload.earlier is not None
    assert found.workload.earlier.versions == CURRENT


def test_the_latest_run_counts(place: Place) -> None:
    """A correction's lesson also has versions, and may be older."""
    place.learn(fails(TWICE), succeeds)
    (path,) = place.lessons.iterdir()
    text = path.read_text()
    older = with_part(with_part(text, "date", "2020-01-01T00:00:00+00:00"), "installed", OLDER)
    path.write_text(older)
    found = place.known().workload.earlier
    assert found is not None
    assert (found.versions, found.source) == (OLDER, "run train-1 on 2020-01-01")
    place.learn(succeeds)
    found = place.known().workload.earlier
    assert found is not None
    assert found.versions == CURRENT
    for one in place.lessons.iterdir():  # in the format of earlier releases
        one.write_text(with_part(one.read_text(), "installed", {}))
    assert place.known().workload.earlier is None


@pytest.mark.parametrize(
    "arguments",
    [
        ARGUMENTS,
        ("--depth=4",),
        (*ARGUMENTS[:2], "--lr=3e-5", "--depth", "4", "--out", "/scratch/b", "--seed=7"),
        ("--depth", "4", "--num_train_epochs=9", "--output_dir=x", "--train_file", "more.jsonl"),
        ("--depth", "4", "--gradient_checkpointing", "--per_device_train_batch_size=2", "--bf16"),
    ],
)
def test_it_holds_under_other_settings(place: Place, arguments: tuple[str, ...]) -> None:
    """Duration, learning rate, data and output folder don't matter."""
    place.learn(fails(TWICE), succeeds)
    assert place.overrides(*arguments) == SECOND


def test_it_holds_wherever_the_script_lies(place: Place, tmp_path: Path) -> None:
    """A colleague's checkout has another path."""
    place.learn(fails(TWICE), succeeds)
    place.script = place.script.parent.rename(tmp_path / "checkout") / "train.py"
    assert place.overrides() == SECOND


@pytest.mark.parametrize("arguments", [("--depth=6",), ("--depth=4", "--share_blocks"), ("4",)])
def test_it_lapses_with_other_arguments(place: Place, arguments: tuple[str, ...]) -> None:
    """A script's arguments may decide what it trains."""
    place.learn(fails(TWICE), succeeds)
    assert (place.overrides(*arguments), place.known(*arguments).lessons) == ({}, ())


def test_it_lapses_with_an_argument_that_the_script_replaces(place: Place) -> None:
    """The replacement may depend on the argument."""
    with place.script.open("a") as file:
        file.write("args.depth = args.depth // 2\n")
    place.learn(fails(TWICE), succeeds)
    assert place.overrides() == SECOND
    assert place.overrides("--depth=6") == {}


@pytest.mark.parametrize("name", ["train.py", "layers.py"])
def test_it_lapses_with_another_script(place: Place, name: str) -> None:
    """The script or a file that it imports has changed."""
    place.learn(fails(TWICE), succeeds)
    with (place.script.parent / name).open("a") as file:
        file.write("# mended\n")
    assert place.known().lessons == ()


def test_a_pipe_among_the_arguments(place: Place, tmp_path: Path) -> None:
    """A pipe without a writer doesn't block."""
    os.mkfifo(tmp_path / "config.json")
    (tmp_path / "endless.yaml").symlink_to("/dev/zero")
    for name in ("config.json", "endless.yaml"):
        assert len(circumstances(place.request("--config", str(tmp_path / name)), WORLD)) == 12


def test_it_holds_beside_files_that_the_script_doesnt_import(place: Place) -> None:
    """Output files and other scripts don't matter."""
    place.learn(fails(TWICE), succeeds)
    (place.script.parent / "other.py").write_text("x = 1\n")
    assert place.overrides() == SECOND


@pytest.mark.parametrize(
    ("distribution", "lapses"), [("deepspeed", True), ("torch", False), ("transformers", False)]
)
def test_it_lapses_with_a_version_that_its_entry_names(
    place: Place, distribution: str, lapses: bool
) -> None:
    """An upgrade may have fixed the failure."""
    place.learn(fails(TWICE), succeeds)
    upgraded = replace(WORLD, versions={**WORLD.versions, distribution: "99.0"})
    assert bool(place.known(workload=upgraded).lessons) is not lapses


def test_what_the_user_asks_for_now_holds(place: Place) -> None:
    """A flag overrides an observed setting, but not a fact."""
    place.learn(fails(TWICE, observed={"gradient_checkpointing": "reentrant"}), succeeds)
    asked = Known("non_reentrant", Origin.FLAG, "--gradient_checkpointing_kwargs")
    mended = WORLD.informed([(Setting.GRADIENT_CHECKPOINTING, asked)])
    found = place.known(workload=mended)
    assert found.workload.known[Setting.GRADIENT_CHECKPOINTING] == asked
    assert len(found.lessons) == 1
    assert place.overrides(workload=mended) == {}


BROKEN = {
    "cut off": lambda text: text[: len(text) // 2],
    "empty": lambda _: "",
    "binary": lambda _: "\0\udcff",
    "another format": lambda text: text.replace('"format": 1', '"format": 2'),
    "another's name": lambda text: text.replace(TWICE, "zoo"),
    "unknown": lambda text: text.replace('"block_runs_twice"', '"zoo"'),
    "no value": lambda text: text.replace('"block_runs_twice": true', '"block_runs_twice": 7'),
    "out of range": lambda text: text.replace('"zero_stage": 2', '"zero_stage": -3'),
    "deep": lambda _: "[" * 100_000,
    "large": lambda text: text + " " * store.LARGEST,
    "no lesson": lambda _: "[1, 2]",
    "400 digits": lambda text: text.replace('"zero_stage": 2', f'"zero_stage": {"9" * 400}'),
    "no terms": lambda text: with_forbidden(text, {}),
    "no values": lambda text: with_forbidden(text, {"zero_stage": []}),
    "large values": lambda text: with_forbidden(text, {"micro_batch": [10**400]}),
    "a name of two lines": lambda text: text.replace('"run": "', '"run": "a\\nb'),
    "no date": lambda text: text.replace('"date": "', '"date": "soon, '),
    "negative memory": lambda text: with_memory(text, needed=-1),
    "no memory has it": lambda text: with_memory(text, limit=10**400),
    "no model": lambda text: with_part(text, "model", {"config": {}, "weights": [[1]]}),
    "no model has it": lambda text: with_part(
        text, "model", {"config": {"hidden_size": 10**400}, "weights": []}
    ),
}


def with_part(text: str, name: str, content: object) -> str:
    """A lesson with a replaced part."""
    return json.dumps({**json.loads(text), name: content})


def with_forbidden(text: str, terms: object) -> str:
    """A lesson that forbids something."""
    return with_part(text, "forbidden", [{"terms": terms, "summary": "an attempt failed"}])


def with_memory(text: str, **changed: int) -> str:
    """A lesson with the memory that a training needed."""
    measured = {"settings": {}, "needed": 1, "context": None, "limit": 1, **changed}
    return with_part(text, "trained", measured)


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_is_no_lesson(place: Place, name: str) -> None:
    """It is reported and ignored, and kept until relearned."""
    place.learn(fails(TWICE, observed={"zero_stage": 2}), succeeds)
    (path,) = place.lessons.iterdir()
    broken = BROKEN[name](path.read_text()).encode(errors="surrogateescape")
    path.write_bytes(broken)
    found = place.known()
    assert found.lessons == ()
    assert [str(path) in note for note in found.notes] == [True]
    assert path.read_bytes() == broken
    place.learn(fails(TWICE), succeeds)
    assert place.overrides() == SECOND


ODD_MODELS = (
    {"config": {"model_type": "qwen2", "hidden_size": {}, "vocab_size": []}, "weights": []},
    {"config": {"model_type": "llama", "text_config": 7, "num_attention_heads": 0}, "weights": []},
    {"config": {"model_type": ["llama"], "hidden_size": -5}, "weights": []},
)


@pytest.mark.parametrize("model", ODD_MODELS)
def test_a_model_that_none_is(place: Place, model: dict[str, object]) -> None:
    """The model's configuration has no schema: invalid parts are omitted."""
    place.learn(fails(TWICE), succeeds)
    (path,) = place.lessons.iterdir()
    path.write_text(with_part(path.read_text(), "model", model))
    found = place.known(workload=replace(WORLD, model=None))
    assert found.workload.model is None


def test_each_value_as_each_other_type(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """An invalid lesson is ignored or still printable; no launch fails."""
    monkeypatch.setenv(store.SHARED, str(place.lessons))
    monkeypatch.setenv("XDG_CACHE_HOME", str(place.lessons.parent))  # not the tester's lessons
    place.learn(fails(TWICE, observed={"zero_stage": 2}), succeeds)
    (path,) = place.lessons.iterdir()
    measured = {"settings": {"zero_stage": 2}, "needed": GIB, "context": GIB, "limit": GIB}
    whole = {
        **json.loads(with_memory(path.read_text())),
        "forbidden": [{"terms": {"zero_stage": [2]}, "summary": "an attempt failed"}],
        "measured": [measured],
        "trained": measured,
        "model": {"config": QWEN2_7B, "weights": [["layer", [2, 2], True]]},
    }
    for where, changed in other_forms(whole):
        path.write_text(json.dumps(changed))
        try:
            found = place.known()
            assert isinstance([*found.sentences(CATALOGUE)], list)
            planned(REQUEST, found.workload, HARDWARE, known_rules(CURRENT), has_failed=False)
            cli(["lessons", "--json"])
            cli(["lessons"])
        except Exception as error:
            raise AssertionError(where) from error


def test_a_pipe_or_link_among_lessons(place: Place, tmp_path: Path) -> None:
    """Pipes don't block, and links aren't followed."""
    place.learn(fails(TWICE), succeeds)
    (path,) = place.lessons.iterdir()
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    (note,) = place.known().notes
    assert note == f"ignored: {path} can't be read as a lesson: it is a link"
    path.unlink()
    os.mkfifo(path)
    (note,) = place.known().notes
    assert note == f"ignored: {path} can't be read as a lesson: it isn't a regular file"


@needs_root
def test_another_users_lesson_doesnt_count(place: Place) -> None:
    """It would decide the plan; each owner is named once."""
    place.learn(fails(TWICE), succeeds)
    (path,) = place.lessons.iterdir()
    os.chown(path, OTHER, OTHER)
    found = place.known()
    assert (found.lessons, found.constraints) == ((), ())
    rule = f"only yours and root's count, unless you set {store.SHARED}=trusted:{place.lessons}"
    whose = f"1 lesson of user {OTHER} in {place.lessons}"
    assert found.notes == (f"ignored: {whose}: {rule}",)
    for number in range(3):
        planted = path.with_name(f"{path.stem}-{number}.json")
        planted.write_text("{")
        os.chown(planted, OTHER, OTHER)
    (note,) = place.known().notes
    assert note.startswith(f"ignored: 4 lessons of user {OTHER} in {place.lessons}")
    place.environment = {store.SHARED: f"trusted:{place.lessons}"}
    found = place.known()
    assert [kept.owner for kept in found.lessons] == [f"user {OTHER}"]
    (sentence,) = found.sentences(CATALOGUE)
    assert f" by user {OTHER}: " in sentence


@needs_root
def test_another_users_lesson_hides_none(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the same name in a folder that is read first."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shared, place.environment = place.environment, {}
    place.learn(fails(TWICE), succeeds)
    (own,) = (tmp_path / "cache" / "safe-launch" / "lessons").iterdir()
    place.lessons.mkdir()
    (place.lessons / own.name).write_text("{")
    os.chown(place.lessons / own.name, OTHER, OTHER)
    place.environment = shared
    assert [kept.path for kept in place.known().lessons] == [own]


@needs_root
def test_roots_lessons_are_everybodys(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A site provides them; the output names their owner."""
    place.learn(fails(TWICE), succeeds)
    monkeypatch.setattr("os.geteuid", lambda: OTHER)
    assert [kept.owner for kept in place.known().lessons] == ["root"]


@pytest.mark.parametrize("bits", [0o622, 0o602, 0o620])
def test_a_lesson_that_others_can_write(place: Place, bits: int) -> None:
    """It is ignored; our own lessons aren't writable by others."""
    before = os.umask(0)
    try:
        place.learn(fails(TWICE), succeeds)
    finally:
        os.umask(before)
    (path,) = place.lessons.iterdir()
    assert path.stat().st_mode & 0o777 == 0o644
    path.chmod(bits)
    assert place.known().lessons == ()
    assert "can be written by others than" in place.known().notes[0]


@needs_root
def test_no_planted_link_is_followed(place: Place, tmp_path: Path) -> None:
    """The target's content and permissions stay unchanged."""
    treasure = tmp_path / "treasure"
    treasure.write_text("mine")
    treasure.chmod(0o600)
    place.learn(fails(TWICE), succeeds)
    (path,) = place.lessons.iterdir()
    path.unlink()
    path.symlink_to(treasure)
    place.learn(fails(TWICE), succeeds)
    assert (treasure.read_text(), treasure.stat().st_mode & 0o777) == ("mine", 0o600)
    assert not path.is_symlink()


def test_many_writers(place: Place) -> None:
    """Readers see only complete lessons, and no temporary files remain."""
    place.learn(fails(TWICE), succeeds)
    (path,) = place.lessons.iterdir()
    lesson = msgspec.convert(json.loads(path.read_text()), Lesson)

    def write(number: int) -> object:
        own = msgspec.structs.replace(lesson, run=f"run-{number}", evidence="x" * 5000)
        other = msgspec.structs.replace(own, failure=f"failure-{number}")
        return [store.keep(one, place.lessons) for one in (own, other)]

    with ThreadPoolExecutor(50) as pool:
        writing = [pool.submit(write, number) for number in range(50)]
        while not all(each.done() for each in writing):
            for found in store.find([store.Folder(place.lessons)]):
                assert not isinstance(found, Refused), found
    assert all(each.result() == [None, None] for each in writing)
    assert len([*place.lessons.iterdir()]) == 51


def test_where_nothing_can_be_written(place: Place) -> None:
    """A message is printed, and the run's result is unchanged."""
    place.lessons.write_text("a file")
    run, said = place.learn(fails(TWICE), succeeds)
    assert run.end.code == 0
    assert said[0].startswith(f"this run's lessons can't be saved in {place.lessons}")
    assert place.known() == Learnt(WORLD)


def test_switched_off(place: Place) -> None:
    """Lessons are neither read nor written."""
    place.learn(fails(TWICE), succeeds)
    before = sorted(place.lessons.iterdir())
    place.environment = {store.SHARED: store.OFF}
    assert place.learn(fails(TWICE), succeeds)[1] == []
    assert (place.known().lessons, sorted(place.lessons.iterdir())) == ((), before)


def test_a_user_without_a_home(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers have only the shared folder."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", lambda: Path("~zoo").expanduser())
    place.learn(fails(TWICE), succeeds)
    assert place.overrides() == SECOND
    place.environment = {}
    assert place.learn(fails(TWICE), succeeds)[1] == []
    assert place.known().lessons == ()


def test_a_shared_lesson_comes_before_ones_own(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both folders are read."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shared, place.environment = place.environment, {}
    place.learn(fails(TWICE), succeeds)
    own = tmp_path / "cache" / "safe-launch" / "lessons"
    assert len([*own.iterdir()]) == 1
    place.environment = shared
    assert [kept.path.parent for kept in place.known().lessons] == [own]
    place.learn(fails(TWICE), succeeds)
    assert [kept.path.parent for kept in place.known().lessons] == [place.lessons]


def test_forgotten_where_it_is_disproved(place: Place) -> None:
    """By a run without it that trains at once, not by one that fails as before."""
    place.learn(fails(TWICE), succeeds)
    lessons = place.known().lessons
    again = ran(place.run, WORLD, fails(TWICE), succeeds, request=place.request())
    assert [*forget_disproved(again.state, lessons)] == []
    once = ran(place.run, WORLD, succeeds, request=place.request())
    (said,) = forget_disproved(once.state, lessons)
    assert said.startswith("deleted")
    assert place.known().lessons == ()


def test_evidence_has_no_secret(place: Place) -> None:
    """A message may quote a key."""
    run = ran(place.run, WORLD, fails(TWICE), succeeds, request=place.request())
    record = replace(run.state.findings[0].record, message="x https://me:geheim123@host/y")
    finding = replace(run.state.findings[0], record=record)
    state = replace(run.state, findings={0: finding})
    assert len([*keep(state, WORLD, HARDWARE, "train-1", place.environment)]) == 1
    (path,) = place.lessons.iterdir()
    assert "x https://***@host/y" in path.read_text()
    assert "geheim" not in path.read_text()


def test_memory_that_others_took_is_no_lesson(place: Place) -> None:
    """Other processes may be gone the next time."""
    run = ran(place.run, WORLD, fails(TWICE), succeeds, request=place.request())
    taken = "CUDA out of memory. Process 17 has 4.97 GiB memory in use. Including non-PyTorch"
    record = replace(run.state.findings[0].record, message=taken)
    state = replace(run.state, findings={0: replace(run.state.findings[0], record=record)})
    assert [*keep(state, WORLD, HARDWARE, "train-1", place.environment)] == []


def holds(peak: int) -> Ending:
    """The script finishes; one of its two ranks held this much memory, the other half."""
    row = RankProgress(0, 1, 1, Phase.ENDED, 4, 0.0, 0.0, 0.0, peak=peak // 2, context=GIB)
    rows = (row, replace(row, rank=1, peak=peak))
    return lambda attempt: Succeeded(attempt, seen=Seen({"sequence_length": 512}, rows=rows))


def test_what_was_needed_is_known(place: Place) -> None:
    """Without a failure no message is printed; the latest run counts."""
    world = replace(workload_of(model_of(QWEN2_7B), {}), versions=CURRENT)
    known = {name: one for name, one in world.known.items() if name is not Fact.SEQUENCE_LENGTH}
    world = replace(world, known=known)
    for peak in (7 * GIB, 6 * GIB):
        run = ran(place.run, world, holds(peak), request=place.request())
        assert [*keep(run.state, world, HARDWARE, "train-1", place.environment)] == []
    found = place.known(workload=world)
    assert found.workload.trained is not None
    assert (found.workload.trained.needed, found.workload.trained.context) == (6 * GIB, GIB)
    assert found.workload.value(Fact.SEQUENCE_LENGTH) == 512
    assert not found.has_failed
    (sentence,) = found.sentences(CATALOGUE)
    assert sentence.endswith(": a rank needed 6.0 GiB of memory")
    # The next launch keeps this run's knowledge of the data.
    again = ran(place.run, found.workload, holds(6 * GIB), request=place.request())
    assert [*keep(again.state, world, HARDWARE, "train-2", place.environment)] == []
    assert place.known(workload=world).workload.value(Fact.SEQUENCE_LENGTH) == 512
    other = replace(HARDWARE, accelerator=replace(HARDWARE.accelerator, memory=40 * GIB))
    request = place.request()
    assert not learnt(request, world, other, CATALOGUE, place.environment).lessons


@pytest.mark.parametrize("hidden", [False, True])
def test_the_second_plan_knows_what_the_workers_told(place: Place, *, hidden: bool) -> None:
    """Except for settings that were changed before the workers reported."""
    world = replace(workload_of(model_of(QWEN2_7B), {}), versions=CURRENT)
    world = replace(world, known={Fact.ENGINE: world.known[Fact.ENGINE]})
    asked = (Setting.ACCUMULATION, Known(8, Origin.OBSERVED, "TrainingArguments"))

    def tells(attempt: Attempt) -> Succeeded:
        done = holds(6 * GIB)(attempt)
        assert isinstance(done, Succeeded)
        changes = (Change(Setting.MICRO_BATCH, 8, "", 4, rule(micro_batch=8)),)
        plan = replace(attempt.plan, changes=changes if hidden else ())
        seen = replace(
            done.seen, observed={"sequence_length": 512, "loss": "cross_entropy"}, asked=(asked,)
        )
        return replace(done, attempt=replace(attempt, plan=plan), seen=seen)

    run = ran(place.run, world, tells, request=place.request())
    assert [*keep(run.state, world, HARDWARE, "train-1", place.environment)] == []
    known = place.known(workload=world).workload
    assert known.value(Fact.SEQUENCE_LENGTH) == 512
    told = known.value(Setting.ACCUMULATION), known.value(Fact.LOSS)
    assert told == ((None, None) if hidden else (8, "cross_entropy"))


def test_memory_without_an_estimate_is_not_kept(place: Place) -> None:
    """Without a known model it couldn't be used."""
    place.learn(holds(6 * GIB))
    (path,) = place.lessons.iterdir()
    assert json.loads(path.read_text())["trained"] is None
