"""Choose among candidates by successive halving on validation, within a number of minutes or of trials.

Every rung trains the candidates still in the race for longer, each from where it stopped, and keeps the best third. The
engine knows neither models nor data: a judge trains a candidate and says how good it is on validation.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from compgcn.data.columns import counted
from compgcn.errors import InputError
from compgcn.train.loop import Event, Interrupted
from compgcn.train.recipes import Candidate
from compgcn.train.storage import append, reason

JOURNAL = "journal.jsonl"
# Why the ranks of a search are not those of the run
FILTERED = (
    "a search never reads test: it filters ranks by train and valid alone, so its MRR may be lower than the run's"
)
_WORDS = {  # for the parts of a search
    "goal": "another task",
    "budget": "other --minutes or --trials",
    "seed": "another seed",
    "triples": "other triples or features",
    "labels": "other labels",
    "candidates": "other models",
}
_FEWER = 3  # a rung keeps one in so many candidates
_WHOLE = 4  # trials that cannot halve more candidates train so many, each to its end
OF_FOLDS = "likelihood"  # the metric of more folds, the more a candidate is trained
_GROWS = 4  # times what it had, a slow model of another kind is worth training on
_SHORTEST = 0.1  # share of a whole training that every candidate of the first rung should have


class Cost(NamedTuple):
    """Seconds of a whole training (0 if the estimate already trained it), and the least share that can be trained."""

    seconds: float
    least: float


class Judge(Protocol):
    """Trains candidates and compares them on validation; it never looks at test."""

    @property
    def goal(self) -> str: ...  # the metric to raise

    def cost(self, candidate: Candidate) -> Cost:
        """Estimate the cost of a candidate; called where time is the budget. Errors as in `train`."""

    def train(self, candidate: Candidate, share: float, *, final: bool) -> tuple[float, float]:
        """Train up to a share of a whole training, from where the candidate stopped; return its best value and share.

        The share is 1 where the candidate stops early.

        With `final` no training follows, so that a schedule of the learning rate should end here. Raise `InputError`
        for settings that do not go together or do not fit into memory, and `Interrupted` where the caller stops.
        """

    def drop(self, candidate: Candidate) -> None:
        """Forget a candidate that has lost."""


class Trial(NamedTuple):
    """A training of one candidate in one rung; one that failed, was left out or ended early says so in `error`."""

    rung: int
    name: str
    share: float  # of a whole training, with all earlier rungs
    value: float | None
    spent: float  # seconds; in an outcome, those of all its rungs
    error: str = ""


class Outcome(NamedTuple):
    """The metric that decided, and the last trial of every candidate, the winner first."""

    goal: str
    trials: list[Trial]

    @property
    def reason(self) -> str:
        """A sentence that says why the winner was chosen."""
        (name, value), *others = [(one.name, round(one.value, 4)) for one in self.trials if one.value is not None]
        rival, second = max(others, key=lambda one: one[1], default=("", -math.inf))
        if second >= value:
            how = "is no worse with" if second == value else "had less training with"
            return f"'{name}' is kept with validation {self.goal} {value:.4f}; '{rival}' {how} {second:.4f}"
        after, of = f"; '{rival}' is next with {second:.4f}" if others else "", counted(1 + len(others), "candidate")
        return f"'{name}' has the highest validation {self.goal} of {of}, {value:.4f}{after}"


class Budget(NamedTuple):
    """Seconds, or trials in their place."""

    seconds: float | None = None
    trials: int | None = None

    @property
    def option(self) -> str:
        return f"--trials {self.trials}" if self.seconds is None else f"--minutes {self.seconds / 60:g}"


class Journal:
    """The file that a stopped search resumes from: a line about each cost, rung, stop and trial ended."""

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        """Open the journal of the search that `about` describes; refuse that of another one."""
        self.path, self.lines = path, _read(path)
        about = json.loads(json.dumps(about))
        if not self.lines:
            self.add("search", **about)
        changed = [key for key in about if about[key] != self.lines[0].get(key)]
        if changed:
            option = Budget(*self.lines[0]["budget"]).option
            again = f"give it {option}, or --minutes below those it had to end it, " if changed[0] == "budget" else ""
            raise InputError(
                f"{path.parent.parent} holds a search with {_WORDS[changed[0]]}; {again}choose another --run-dir, "
                "or say --overwrite to search anew"
            )

    def add(self, event: str, **content: Any) -> None:
        self.lines.append({"event": event, **content})
        if len(self.lines) == 1:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        elif not self.path.is_file():
            raise InputError(f"{self.path} was removed while the search ran; the same command begins anew")
        append(self.path, json.dumps(self.lines[-1]) + "\n")

    def of(self, event: str) -> list[dict[str, Any]]:
        """Return the contents of all lines about an event."""
        return [{key: line[key] for key in line if key != "event"} for line in self.lines if line["event"] == event]


def _read(path: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a journal; a kill or a full disk may have cut the last one short."""
    whole, _, _ = path.read_bytes().rpartition(b"\n") if path.is_file() else (b"", b"", b"")
    try:
        lines: list[dict[str, Any]] = [json.loads(line) for line in whole.splitlines()]
        for number, line in enumerate(lines):
            torn = line["event"] == "end" and line.keys() != {"event", *Trial._fields}
            if torn or (line["event"] == "search") != (number == 0):
                raise ValueError(f"line {number + 1} is none of a journal")
        return lines
    except (ValueError, TypeError, LookupError) as error:
        what = f"{path.parent.parent} is damaged: search/{path.name}: {reason(error)}"
        raise InputError(f"{what}; --overwrite searches anew") from None


def standings(lines: Sequence[Mapping[str, Any]]) -> list[Trial]:
    """Return the last trial of every candidate in a journal: the winner, then the others by their values.

    Each has the seconds of all that the candidate was given, its estimate included. Where folds judge, a candidate with
    at most half the share of those in the last rung does not win: few folds may be lucky.
    """
    trials = (Trial(**{key: line[key] for key in Trial._fields}) for line in lines if line["event"] == "end")
    last, rungs = {trial.name: trial for trial in trials}, [line for line in lines if line["event"] == "rung"]
    folds = bool(lines) and lines[0].get("goal") == OF_FOLDS
    field = [last[name] for name in (rungs[-1]["field"] if rungs and folds else ()) if name in last]
    least = min((trial.share for trial in field if trial.value is not None), default=0.0)

    def merit(trial: Trial) -> tuple[bool, bool, float]:
        return trial.value is not None, trial.share > least / 2, trial.value or 0.0

    winner = max(last.values(), key=merit, default=None)
    ordered = sorted(last.values(), key=lambda one: (one is winner, one.value or 0.0, merit(one)), reverse=True)
    return [one._replace(spent=spent(lines, one.name)) for one in ordered]


def spent(lines: Sequence[Mapping[str, Any]], name: str) -> float:
    """Return the seconds that a candidate has had, by the lines of a journal."""
    seconds: float = sum(line.get("spent", 0.0) for line in lines if line.get("name") == name)
    return seconds


def journalled(folder: Path) -> Outcome | None:
    """Return the outcome of the search in a run folder, so far; None without one."""
    lines = _read(folder / "search" / JOURNAL)
    table = standings(lines)
    return Outcome(lines[0]["goal"], table) if table else None


def ended_by(folder: Path, budget: Budget) -> Budget | None:
    """Return the budget of a search that has had more than these seconds already: it ends with its best model so far.

    None for another budget; a search without a model yet is refused.
    """
    lines = _read(folder / "search" / JOURNAL)
    if budget.seconds is None or budget.seconds >= sum(line.get("spent", 0.0) for line in lines):
        return None
    own, table = Budget(*lines[0]["budget"]), standings(lines)
    if not table or table[0].value is None:
        raise InputError(f"the search in {folder} has judged no model yet; give it {own.option} to go on")
    return own


def _sizes(first: int, joining: int) -> list[int]:
    """Return the number of candidates in each rung."""
    sizes = [first]
    while sizes[-1] > 1 or (joining and len(sizes) == 1):
        sizes.append(max(round(sizes[-1] / _FEWER), 1) + (joining if len(sizes) == 1 else 0))
    return sizes


class Search:
    """Successive halving; the more promising candidates come first, since a short budget leaves out the last ones.

    A budget of 0 seconds ends a search with its best model so far.

    `notify` takes an event "trial" when a trial begins, with the seconds left, and when one ends; and an event "cost"
    before the judge estimates a candidate.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        judge: Judge,
        budget: Budget,
        journal: Journal,
        notify: Callable[[Event], None] = lambda event: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.candidates, self.judge, self.budget = {one.name: one for one in candidates}, judge, budget
        self.journal, self.notify, self.clock = journal, notify, clock
        self.ended = [Trial(**line) for line in journal.of("end")]
        self.costs = {line["name"]: Cost(line["seconds"], line["least"]) for line in journal.of("cost")}

    def run(self) -> Outcome:
        """Run or resume the search; the same call on a finished one returns at once."""
        for one in (one for one in self.candidates.values() if one.omitted):
            self._leave_out(one.name, one.omitted)
        ends, stopped = self.budget.seconds == 0, self.journal.lines[-1]
        if "share" in stopped and stopped["event"] == "stop" and not ends:  # it goes on as it was
            self._try(stopped["rung"], stopped["name"], stopped["share"], final=stopped["final"])
        field, rung, over = [] if ends else self._first(), 0, False
        while field and not over:
            field = self._begin(rung, field)
            self._race(rung, field)
            kept = self._kept(field, rung)
            for name in () if rung else set(field) - set(kept):
                self.judge.drop(self.candidates[name])
            over = len(field) == len(kept) == 1 or all(self.last(name).share >= 1 for name in kept)
            field, rung = kept, rung + 1
        after, refused = len(self.journal.of("rung")), set[str]()
        while waiting := self._next(refused):
            if not self._goes_on(after, waiting, self.left):
                refused.add(waiting)
        for name in (name for name, one in self.candidates.items() if not one.after or name in self.costs):
            self._leave_out(name, f"no {'time' if self.budget.trials is None else 'training'} was left for it")
        table = standings(self.journal.lines)
        if not table or table[0].value is None:
            why = f"{table[0].name}: {table[0].error}" if table else "no candidate was tried"
            least = math.prod(self.costs[table[0].name]) if table and table[0].name in self.costs else math.inf
            short = (self.budget.seconds or math.inf) < least < math.inf
            remedy = f"give it --minutes {math.ceil(least / 30)}, or " if short else ""
            raise InputError(f"the search found no model ({why}); {remedy}choose one with --model or --encoder")
        return Outcome(self.judge.goal, table)

    # State

    @property
    def left(self) -> float:
        """Seconds left of the budget."""
        taken: float = sum(line.get("spent", 0.0) for line in self.journal.lines)
        return math.inf if self.budget.seconds is None else self.budget.seconds - taken

    def last(self, name: str) -> Trial:
        """Return the last trial of a candidate, an empty one where it has none."""
        return next((one for one in reversed(self.ended) if one.name == name), Trial(0, name, 0.0, None, 0.0))

    # Rungs

    def _entrants(self) -> tuple[list[str], list[str]]:
        """Return the candidates of the first rung and those that join in the second; as many as there are trials for.

        A candidate that no other of its kind competes with joins, unless that is true of all. Trials for rungs of no
        more than `_WHOLE` candidates train each of these to its end.
        """
        names = [name for name, one in self.candidates.items() if not one.after and not one.omitted]
        while self.budget.trials is None or len(names) > _WHOLE:
            kinds = Counter(self.candidates[name].kind for name in names)
            first = [name for name in names if kinds[self.candidates[name].kind] > 1] or names
            joining = [name for name in names if name not in first]
            trials = sum(_sizes(len(first), len(joining)))
            if self.budget.trials is None or trials <= self.budget.trials:
                return first, joining
            names = names[:-1]
        return names[: self.budget.trials], []

    def _first(self) -> list[str]:
        """Return the candidates of the first rung: as many as there is time for."""
        first, joining = self._entrants()
        if self.budget.seconds is None:
            return first
        taken, limit = 0.0, self.left / (2 + len(_sizes(len(first), len(joining))))
        chosen: list[str] = []
        for name in first:
            if math.isinf(seconds := self.cost(name).seconds):
                continue
            taken += _SHORTEST * seconds
            if chosen and taken > limit:  # an estimate takes time too
                break
            chosen.append(name)
        return chosen

    def _begin(self, rung: int, field: list[str]) -> list[str]:
        """Return the candidates of a rung, as the journal has them."""
        if rung == len(known := self.journal.of("rung")):
            joining = 0 if rung else len(self._entrants()[1])
            few = self.budget.trials is not None and not rung and len(field) + joining <= _WHOLE
            ahead = 1 if few else len(_sizes(len(field), joining))  # rungs, with this one
            meet = len({self.candidates[name].kind for name in field}) > 1 and len(known) == 1
            part = 1.0 if ahead == 1 else 1 / 3 if meet else 1 / (2 + ahead)  # of the time left
            floor = 0.0 if self.budget.seconds is None else self.left * (1 - part)
            self.journal.add("rung", field=field, floor=floor, ahead=ahead)
            return field
        return list(known[rung]["field"])

    def _kept(self, field: Sequence[str], rung: int) -> list[str]:
        """Return the candidates of the next rung: the best third, and after the first those without rivals."""
        values = {one.name: one.value for one in self.ended if one.rung <= rung}  # the last of each
        going = [name for name in field if values.get(name) is not None]
        ranked = sorted(going, key=lambda name: values[name] or 0.0, reverse=True)
        kept = ranked[: max(round(len(field) / _FEWER), 1)]
        return kept if rung else kept + self._entrants()[1]

    def _next(self, refused: Collection[str]) -> str | None:
        """Return the candidate that the time left is for, if any but those refused.

        The winner comes first, until it is trained to its end. Models of another kind are next, which may learn slowly
        at first; then those that follow the winner, those that lost, the best first, and those that were not tried.
        """
        if self.budget.seconds is None or not self.ended:
            return None
        table = standings(self.journal.lines)
        best = self.candidates[table[0].name]
        going = [one.name for one in table if one.rung and one.value is not None and one.share < 1]
        leading = [name for name in going if name == best.name]
        rivals = [name for name in going if self.candidates[name].kind != best.kind and self._can_grow(name)]
        tried = {one.name for one in self.ended if one.share or one.spent or self.candidates[one.name].omitted}
        untried = {name: one.after for name, one in self.candidates.items() if name not in tried}
        following = [name for name in untried if untried[name] == (best.after or best.name)]
        alone = [name for name in untried if not untried[name]]
        for name in (*leading, *rivals, *following, *going, *alone):
            if self.left <= 0:  # an estimate takes time too
                return None
            if name not in refused and math.prod(self.cost(name)) <= self.left:
                return name
        return None

    def _can_grow(self, name: str) -> bool:
        """Tell whether the time left trains a candidate for half of a whole training, or for four times what it had.

        One that was trained on after the rungs can.
        """
        last = self.last(name)
        share = last.share + self.left / max(self.cost(name).seconds, 1e-9)
        return last.rung == len(self.journal.of("rung")) or share >= min(1 / 2, _GROWS * last.share)

    def _race(self, rung: int, field: Sequence[str]) -> None:
        """Train every candidate of a rung: in the first all for the same share, later every kind for the same time.

        One whose shortest training takes long comes last: it may take more than its part.
        """
        about = self.journal.of("rung")[rung]
        done = {trial.name for trial in self.ended if trial.rung == rung}
        waiting = [name for name in field if name not in done]
        if self.budget.trials is not None:
            for name in waiting:
                self._try(rung, name, float(_FEWER) ** (1 - about["ahead"]), final=about["ahead"] == 1)
            return
        if not rung:
            share = max(self.left - about["floor"], 0.0) / max(sum(self.cost(name).seconds for name in waiting), 1e-9)
            for name in waiting:
                self._goes_on(rung, name, share * self.cost(name).seconds)
            return
        waiting.sort(key=lambda name: math.prod(self.cost(name)))
        kinds = Counter(self.candidates[name].kind for name in field)
        parts = [1 / kinds[self.candidates[name].kind] for name in waiting]
        for number, name in enumerate(waiting):
            given = max(self.left - about["floor"], 0.0) * parts[number] / sum(parts[number:])
            until = self.left - given
            while self._goes_on(rung, name, self.left - until) and self.left - until > given / 2:
                pass  # it was faster than estimated

    def _goes_on(self, rung: int, name: str, given: float) -> bool:
        """Train a candidate for so many seconds; return whether it did.

        Its shortest training may take longer, but must leave the best candidate the time to end its own; if it is its
        first, half of the time left is enough for the best. The first model may take all the time there is.
        """
        (seconds, least), before = self.cost(name), self.last(name).share
        share = min(max(before + given / max(seconds, 1e-9), before + least), 1.0)
        wanted = (share - before) * seconds
        best = standings(self.journal.lines)[0] if self.ended else None
        if best is None or best.value is None:
            most = max(self.left, self.budget.seconds or 0.0)
        else:
            kept = 0.0 if name == best.name else (1 - best.share) * self.cost(best.name).seconds
            most = max(given, self.left - kept, 0.0 if before else self.left / 2)
        if share > before and wanted <= most * (1 + 1e-9):  # the share is rounded
            final = share >= 1 or self.left - wanted < least * seconds
            if final and share < 1 and sum(one.name == name and one.share > 0 for one in self.ended) == 1:
                share, final = (before + share) / 2, False  # the pace of its first training may be far too slow
            self._try(rung, name, share, final=final)
            return self.last(name).share > before
        if not before and math.isfinite(seconds):
            left = f"{max(self.left, 0):.0f} s are left"
            left = left if wanted > self.left else f"the best model may need the {self.left:.0f} s left"
            why = f"its shortest training takes about {max(wanted, 1):.0f} s, and {left}"
            self._leave_out(name, why, rung)
        return False

    def _try(self, rung: int, name: str, share: float, *, final: bool) -> None:
        last, begun = self.last(name), self.clock()
        value, error = last.value, ""
        self.notify({"event": "trial", "rung": rung, "name": name, "share": share, "left": self.left})
        try:
            value, share = self.judge.train(self.candidates[name], share, final=final)
        except Interrupted:
            self.journal.add("stop", rung=rung, name=name, share=share, final=final, spent=self.clock() - begun)
            raise
        except InputError as reason:  # these settings do not go together, or the loss is not finite
            share, error = last.share, str(reason)
        self._end(Trial(rung, name, share, value, self.clock() - begun, error))

    def _leave_out(self, name: str, why: str, rung: int = 0) -> None:
        """Say why a candidate has no trial, unless it has one."""
        if all(trial.name != name for trial in self.ended):
            self._end(Trial(rung, name, 0.0, None, 0.0, why))

    def _end(self, trial: Trial) -> None:
        self.journal.add("end", **trial._asdict())
        self.ended.append(trial)
        seconds = spent(self.journal.lines, trial.name)
        self.notify({"event": "trial", **trial._asdict(), "spent": seconds, "left": self.left})

    def cost(self, name: str) -> Cost:
        """Return the cost of a candidate; infinite if it cannot train.

        It is estimated once; a trial that takes longer than this, which is a training too, tells more.
        """
        if name not in self.costs:
            self.notify({"event": "cost", "name": name, "left": self.left})
            begun = self.clock()
            try:
                self.costs[name] = self.judge.cost(self.candidates[name])
            except Interrupted:
                self.journal.add("stop", name=name, spent=self.clock() - begun)
                raise
            except InputError as reason:
                self.costs[name] = Cost(math.inf, 1.0)
                self._leave_out(name, str(reason))
            self.journal.add("cost", name=name, **self.costs[name]._asdict(), spent=self.clock() - begun)
        trials = [line for line in self.journal.lines if "share" in line and line["name"] == name]  # and their stops
        ends = [place for place, line in enumerate(trials) if line["event"] == "end"]
        first = ends[-2] + 1 if len(ends) > 1 else 0  # the latest trial: the first one may have compiled kernels
        grown = self.last(name).share - (trials[first - 1]["share"] if first else 0.0)
        trained = spent(trials[first:], name)
        known = grown > 0 and trained > spent(self.journal.of("cost"), name)
        return self.costs[name]._replace(seconds=trained / grown) if known else self.costs[name]
