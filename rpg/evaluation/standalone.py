"""Evaluation of a model outside of a sweep: any checkpoint or Hugging Face model, resumable."""

import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from rpg.config.errors import ConfigError
from rpg.config.evaluation import EngineSpec, OnRay
from rpg.errors import see
from rpg.evaluation.benchmark_summary import Summary, summarise
from rpg.evaluation.drawing import Drawing
from rpg.evaluation.engines.protocol import Engine
from rpg.evaluation.graded_samples import evaluate_problems, progress_lines
from rpg.evaluation.variation import spread_over_prompts, with_prompts
from rpg.models.hub_models import hub_commit, hub_file
from rpg.models.model_cache import pretrained_folder
from rpg.models.positions import positions_of
from rpg.models.truncated_sampling import WHOLE, Restriction, Sampling
from rpg.models.warm_start_cache import local_files
from rpg.store import samples
from rpg.store.atomic_files import atomic_write_json, read_json_object
from rpg.store.checkpoints import model_digest
from rpg.store.draws import Draws, digest
from rpg.store.layout import Layout
from rpg.store.locks import in_turn
from rpg.tasks.benchmarks import Benchmark, LoadedBenchmark, benchmark, check, load_benchmark
from rpg.tasks.checks import Checks
from rpg.tasks.rewards.graders import rules_name
from rpg.tasks.rewards.scoring import Scorer
from rpg.tasks.training_sets import load_training, training_set

RECORD = "evaluation.json"


@dataclass(frozen=True)
class Result:
    """The numbers of one benchmark, and the file with every graded sample."""

    benchmark: str
    summary: Summary
    samples: Path
    notes: list[str]
    checks: Checks
    rules: str | None
    """The rules by which its samples were graded (rpg.tasks.rewards.graders); None for samples
    older than the names of rules."""
    without_leaks: Summary | None
    """The numbers over the problems that are not in the training data; None if none or all of them
    are."""

    def as_json(self) -> dict[str, Any]:
        """Its part of evaluation.json."""
        without = self.without_leaks and self.without_leaks.as_json()
        shown = {"rules": self.rules, "notes": self.notes, "summary": self.summary.as_json()}
        return {**shown, "checks": asdict(self.checks), "summary_without_leaks": without}


def evaluate(
    checkpoint: str | Path,
    benchmarks: Sequence[str | Path] = ("aime24", "aime25", "amc23"),
    *,
    engine: str | dict[str, Any] | EngineSpec = "local",
    place: dict[str, Any] | OnRay | None = None,
    out: Path | None = None,
    data: Path | None = None,
    training: str | None = None,
    samples_per_problem: int | Callable[[str], int] | None = None,
    prompts: int = 1,
    limit: int | None = None,
    temperature: float = 1.0,
    restriction: Restriction = WHOLE,
    max_prompt_tokens: int = 2048,
    max_response_tokens: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    bfloat16: bool = False,
    revision: str | None = None,
    home: Path | None = None,
    grading_workers: int = 1,
    say: Callable[[str], None] = print,
) -> list[Result]:
    """Evaluate a model; the same call again does only what is missing, even after a kill.

    Args:
        checkpoint: a Hugging Face model folder or hub id.
        benchmarks: names (`rpg.tasks.benchmarks.benchmarks()`) or paths of YAML files.
        engine: `local`, `huggingface`, `vllm`, or a mapping with the `type` and its settings.
        place: where on a Ray cluster, e.g. `{"address": "auto", "workers": 8, "gpus": 1}`; None is
            this process.
        out: folder of the results (default: `<home>/evaluations/<name of the checkpoint>`); it
            receives `<benchmark>.parquet` with every graded sample and `evaluation.json`.
        data: folder with local copies of the benchmarks (default: $RPG_DATA, then the hub).
        training: what the model was trained on (a JSON-lines, Parquet or YAML file, as `task.train`
            of a run). Benchmark problems that occur in it, verbatim or nearly so, are listed, and
            counted separately.
        samples_per_problem: k, or what gives it for the name of a benchmark (default: each
            benchmark's own). Temperature 0 is greedy and takes one sample.
        prompts: ask every problem in this many ways; a note says how far the accuracy moves
            (rpg.evaluation.variation).
        max_response_tokens: default: what the model has room for behind the longest prompt, at most
            32,768.
        restriction: which tokens can be sampled, and stop strings.
        limit: the number of problems to take from each benchmark, to try things out.
        home: the data folder, whose samples/ has every response (default: $RPG_HOME, then
            ./rpg-data).

    Calls at the same time draw nothing twice: each draws what no other is drawing, and waits for
    the rest.

    Raises ConfigError, DataError, ModelError, EngineError, GradingError, StoreError: each with one
    readable line.
    """
    layout = Layout.at(home)
    model = pretrained_folder(str(checkpoint), layout.home, say)
    where = (
        as_section(OnRay, {"type": "ray", **place}, "place") if isinstance(place, dict) else place
    )
    spec = as_section(EngineSpec, engine, "engine")
    chosen = [asked for each in _distinct(benchmarks) for asked in with_prompts(each, prompts)]
    if not Path(model).expanduser().is_dir():
        revision = hub_commit(str(model), revision)  # before the benchmarks: it may not be there
    loaded = [load_benchmark(each, folder=data) for each in chosen]
    trained_on = None if training is None else load_training(training_set(training), data)

    longest = max_response_tokens or _room(model, revision, max_prompt_tokens)
    sampling = Sampling(temperature, max_prompt_tokens, longest, restriction)
    evaluation = _Evaluation(
        model=model,
        revision=revision,
        drawing=Drawing(spec, where, sampling, seed, device, bfloat16),
        samples_per_problem=1 if temperature == 0 else samples_per_problem,
        limit=limit,
        training=(trained_on.problems, trained_on.source) if trained_on else (),
        folder=Path(out) if out is not None else default_folder(model, layout.home),
        home=layout.home,
        grading_workers=grading_workers,
        say=say,
    )
    results = evaluation.of(loaded)

    if prompts > 1:
        for first in range(0, len(results), prompts):
            _note_prompts(evaluation.folder, results[first : first + prompts])
    _list(evaluation.folder, layout)
    return results


@dataclass(frozen=True)
class _Evaluation:
    """One call: a model, how responses are drawn from it, and the folder of the results."""

    model: str | Path
    revision: str | None
    drawing: Drawing
    samples_per_problem: int | Callable[[str], int] | None
    limit: int | None
    training: tuple[Any, ...]
    """The problems that the model was trained on and their source; empty if they are not known."""
    folder: Path
    home: Path
    grading_workers: int
    say: Callable[[str], None]

    def of(self, benchmarks: Sequence[LoadedBenchmark]) -> list[Result]:
        """Draw and grade what is missing of each benchmark, and record the results."""
        draws = self.drawing.draws(self.home, self.model, self.revision)
        drawn = self._drawn_identity()
        with self.drawing.when_needed(self.model, self.revision, self.say) as engine:
            return [self._of_one(each, drawn, draws, engine) for each in benchmarks]

    def _of_one(
        self,
        loaded: LoadedBenchmark,
        drawn: Mapping[str, Any],
        draws: Draws,
        engine: Callable[[], Engine],
    ) -> Result:
        if self.limit is not None:  # the digest stays that of the whole benchmark
            loaded = replace(loaded, problems=loaded.problems[: self.limit])
        name = loaded.benchmark.name
        k = self._samples_per_problem(loaded)
        identity = {**drawn, "samples_per_problem": k, **_benchmark_identity(loaded)}
        if self.limit is not None:
            identity["limit"] = self.limit

        path = self.folder / f"{name}.parquet"
        stored = self._stored_rows(loaded, identity, path)
        if stored is not None:
            self.say(f"{name}: already done")
            rows = stored
        else:
            with Scorer(loaded.benchmark.verifier, workers=self.grading_workers) as scorer:
                rows = evaluate_problems(
                    engine,
                    loaded.problems,
                    samples_per_problem=k,
                    seed=self.drawing.seed,
                    scorer=scorer,
                    draws=draws,
                    graded_rows=_older(self.folder, name, identity, draws.key),
                    progress=progress_lines(name, self.say),
                )

        checks = check(loaded, *self.training)
        with in_turn(self.folder / ".lock"):
            record = _record(self.folder)
            if stored is None:
                _set_aside(self.folder, record, name, identity, draws.key)
                samples.write_samples(
                    path, rows, rules_name(loaded.benchmark.verifier), draws.about
                )
            result = _result(loaded, rows, path, checks)
            origin = {"identity": identity, "draws": draws.key, "source": loaded.source}
            record[name] = {**origin, **result.as_json()}
            atomic_write_json(self.folder / RECORD, record)
        return result

    def _samples_per_problem(self, loaded: LoadedBenchmark) -> int:
        wanted = self.samples_per_problem
        if callable(wanted):
            wanted = wanted(loaded.benchmark.name)
        return wanted or loaded.benchmark.samples_per_problem

    def _drawn_identity(self) -> dict[str, Any]:
        """What the results of every benchmark depend on."""
        drawing = self.drawing
        return {
            "model": _identity(self.model, self.revision),
            "engine": drawing.engine.model_dump(mode="json"),
            "sampling": drawing.sampling.record(),
            "seed": drawing.seed,
            "device": drawing.device,
            "bfloat16": drawing.bfloat16,
        }

    def _stored_rows(
        self, loaded: LoadedBenchmark, identity: Mapping[str, Any], path: Path
    ) -> list[dict[str, Any]] | None:
        """The graded samples of an earlier call, if they are those of the same evaluation."""
        entry = _record(self.folder).get(loaded.benchmark.name, {})
        if entry.get("identity") != identity or not path.exists():
            return None
        rows = samples.read_samples(path).to_pylist()
        # The digest in the identity leaves out typesetting, units and blanks; prompts and grading
        # do not.
        asked = {(problem.id, problem.text, problem.answer) for problem in loaded.problems}
        answered = {(row["problem_id"], row["problem"], row["answer"]) for row in rows}
        return rows if asked == answered else None


def _note_prompts(folder: Path, asked: Sequence[Result]) -> None:
    """Say how far the accuracy moves between prompts, and record it with the first."""
    moved = spread_over_prompts(
        [samples.read_samples(result.samples).to_pylist() for result in asked]
    )
    asked[0].notes.append(
        f"{asked[0].benchmark}: standard deviation of the accuracy {moved['prompt']:.3f} "
        "with another prompt, "
        f"{moved['problem']:.3f} with other problems, {moved['sampling']:.3f} with other "
        f"samples ({len(asked)} prompts)"
    )
    with in_turn(folder / ".lock"):
        record = _record(folder)
        record[asked[0].benchmark]["standard_deviations"] = moved
        atomic_write_json(folder / RECORD, record)


def _record(folder: Path) -> dict[str, Any]:
    return read_json_object(folder / RECORD) if (folder / RECORD).exists() else {}


def _older(
    folder: Path, name: str, identity: Mapping[str, Any], draws: str
) -> list[dict[str, Any]]:
    """Graded samples of a benchmark that were drawn in the same way, in the folder or set aside in
    it."""
    rows = []
    for record in (folder / RECORD, *folder.glob(f"*/{RECORD}")):
        entry = _record(record.parent).get(name, {})
        path = record.with_name(f"{name}.parquet")
        if path.exists() and _alike(entry, identity, draws, "prompt", "problems"):
            rows += samples.read_samples(path).to_pylist()
    return rows


def _alike(entry: Mapping[str, Any], identity: Mapping[str, Any], draws: str, *parts: str) -> bool:
    """Whether a result has samples of the same model and settings, and these parts of its identity
    are the same."""
    if "draws" not in entry:  # of an older version
        parts = (*parts, "model", "engine", "sampling", "seed", "device", "bfloat16")
    old = entry.get("identity", {})
    return entry.get("draws", draws) == draws and all(
        old.get(part) == identity[part] for part in parts
    )


def _set_aside(
    folder: Path, record: dict[str, Any], name: str, identity: Mapping[str, Any], draws: str
) -> None:
    """Move what an earlier call has written to a folder of its own, unless the new samples contain
    it."""
    before = record.pop(name, None)
    path = folder / f"{name}.parquet"
    (folder / digest(identity)[:8] / path.name).unlink(
        missing_ok=True
    )  # the same evaluation: it comes back
    if before is None or not path.exists():
        return
    old = before["identity"]
    most = [(each["samples_per_problem"], each.get("limit") or inf) for each in (old, identity)]
    more = all(few <= many for few, many in zip(*most, strict=True))
    if not more or not _alike(before, identity, draws, "prompt", "problems", "verifier"):
        aside = folder / digest(old)[:8]
        atomic_write_json(aside / RECORD, {**_record(aside), name: before})
        for file in (*samples.gradings(path).values(), path):
            file.rename(aside / file.name)


def _list(folder: Path, layout: Layout) -> None:
    """Have the database read a folder of results that is elsewhere: by a link to it."""
    place = layout.evaluations
    if not folder.absolute().is_relative_to(place):
        name = f"{folder.name}-{digest(str(folder.absolute()))[:8]}"
        with contextlib.suppress(OSError):
            place.mkdir(parents=True, exist_ok=True)
            (place / name).symlink_to(folder.absolute())


def _room(checkpoint: str | Path, revision: str | None, prompt: int) -> int:
    """Tokens that a response can have: 32,768, as reasoning models are evaluated, or what the
    model's context leaves."""
    folder = Path(checkpoint).expanduser()
    file = folder / "config.json" if folder.is_dir() else hub_file(str(checkpoint), revision)
    context = positions_of(read_json_object(file)) if file.is_file() else None
    context = context or 2048 + prompt
    return min(32_768, max(int(context) - prompt, int(context) // 2))


def _said(name: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Notes on responses without an answer line, and on answers that could not be read."""
    notes = []
    without = sum(row["extracted"] is None for row in rows) / len(rows)
    if without:
        notes.append(f"{name}: {without:.1%} of the responses have no answer line{see('grading')}")
    unread = Counter(
        form for row in rows if (form := samples.unread_form(row["correct"], row["reason"]))
    )
    if unread.total() > samples.UNREAD_SHARE * len(rows):
        forms = "; ".join(f"{form} ({count})" for form, count in unread.most_common(10))
        seconds = Counter(row.get(samples.SECOND) for row in rows)
        count = unread.total()
        second = (
            f"a second reader found {seconds[True]} right and {seconds[False]} wrong of {count}"
        )
        share = (
            f"{name}: {count / len(rows):.1%} of the answers could not be read and count as wrong"
        )
        notes.append(f"{share}; {second}: {forms}")
    return notes


def _distinct(names: Sequence[str | Path]) -> list[Benchmark]:
    chosen = [benchmark(name) for name in names]
    repeated = [name for name, count in Counter(each.name for each in chosen).items() if count > 1]
    if not chosen or repeated:
        problem = f"{repeated[0]!r} is named twice" if repeated else "none is named"
        raise ConfigError(f"benchmarks: {problem}; expected names such as aime24, each once")
    return chosen


def as_section(kind: Any, value: Any, field: str) -> Any:
    """A section of a configuration from a mapping, or from its `type`."""
    value = {"type": value} if isinstance(value, str) else value
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if first["type"] == "union_tag_invalid":
            accepted = first["ctx"]["expected_tags"].replace("'", "")
            raise ConfigError(
                f"{field}: {first['ctx']['tag']!r} is not known; known: {accepted}"
            ) from None
        where = ".".join(
            [field, *(str(part) for part in first["loc"] if part not in ("local", "ray"))]
        )
        raise ConfigError(f"{where}: {first['msg']} (got {first['input']!r})") from None


def _result(
    loaded: LoadedBenchmark, rows: list[dict[str, Any]], path: Path, checks: Checks
) -> Result:
    leaked = {
        leak.problem for leak in checks.leaks if leak.tier != "renamed"
    }  # these are only listed
    clean = [row for row in rows if row["problem_id"] not in leaked]
    without = summarise(clean) if leaked and clean else None
    notes = [*loaded.notes, *_said(loaded.benchmark.name, rows)]
    rules = samples.metadata(path).get("rules")
    return Result(loaded.benchmark.name, summarise(rows), path, notes, checks, rules, without)


def _benchmark_identity(loaded: LoadedBenchmark) -> dict[str, Any]:
    verifier = loaded.benchmark.verifier.model_dump(mode="json")
    if verifier.get("rules") == "default":  # as in records that are older than this field
        del verifier["rules"]
    prompt = loaded.benchmark.prompt.model_dump(mode="json")
    return {"problems": loaded.digest, "prompt": prompt, "verifier": verifier}


def _identity(checkpoint: str | Path, revision: str | None) -> str:
    """The identity of a model: its recorded digest, or else the names, sizes and times of its
    files."""
    folder = Path(checkpoint).expanduser()
    if not folder.is_dir():
        return f"{checkpoint}@{revision}"
    if (folder / "checkpoint.json").is_file():
        return model_digest(folder)
    return hashlib.sha256(json.dumps(local_files(folder)).encode()).hexdigest()


def default_folder(checkpoint: str | Path, home: Path) -> Path:
    return home / "evaluations" / (str(checkpoint).strip("/").replace("/", "--") or "model")
