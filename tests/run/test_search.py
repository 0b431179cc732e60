"""Successive halving: budgets of seconds and of trials, kinds, journals that resume."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from compgcn.errors import InputError
from compgcn.run.search import Budget, Cost, Journal, Outcome, Search, Trial, journalled, standings
from compgcn.train.loop import Interrupted
from compgcn.train.recipes import Candidate

SECONDS = 10.0  # of a whole training of the candidates below


class Pretended:
    """A judge of candidates whose value is their setting `value`, on a clock that training and estimates move.

    Args:
        seconds: of a whole training.
        stop_after: half of a trial after so many; it keeps what it has trained.
        cost: the estimate; without one it is right.
        each: seconds that an estimate takes.
    """

    goal = "mrr"

    def __init__(
        self,
        seconds: Callable[[Candidate], float] = lambda one: SECONDS,
        stop_after: int | None = None,
        cost: Callable[[Candidate], Cost] | None = None,
        each: float = 0.0,
    ):
        self.now, self.calls = 0.0, list[tuple[str, float]]()
        self.trained, self.dropped, self.finals = dict[str, float](), list[str](), list[tuple[str, float]]()
        self.seconds, self.stop_after, self.each = seconds, stop_after, each
        self.estimate = cost or (lambda one: Cost(seconds(one), 0.01))

    def cost(self, candidate: Candidate) -> Cost:
        self.now += self.each
        return self.estimate(candidate)

    def train(self, candidate: Candidate, share: float, *, final: bool) -> tuple[float, float]:
        self.calls.append((candidate.name, share))
        self.finals += [(candidate.name, share)] if final else []
        stops = len(self.calls) == self.stop_after
        before = self.trained.get(candidate.name, 0.0)
        after = self.trained[candidate.name] = max((before + share) / 2 if stops else share, before)
        self.now += (after - before) * self.seconds(candidate)
        if stops:
            raise Interrupted
        if candidate.settings["value"] is None:
            raise InputError("these settings do not go together")
        return float(candidate.settings["value"]) * min(1.0, 0.5 + share), share

    def drop(self, candidate: Candidate) -> None:
        self.dropped.append(candidate.name)


def candidates(number: int, kinds: Sequence[str] = ("",)) -> list[Candidate]:
    """The later the better, within each kind."""
    return [Candidate(f"c{i}", {"value": (i + 1) / number}, kinds[i % len(kinds)]) for i in range(number)]


def searched(folder: Path, judge: Pretended, some: Sequence[Candidate], **budget: float) -> Search:
    trials = budget.get("trials")
    limits = Budget(budget.get("seconds"), None if trials is None else int(trials))
    about = {"goal": judge.goal, "budget": limits, "candidates": [one.name for one in some]}
    return Search(some, judge, limits, Journal(folder / "search" / "journal.jsonl", about), clock=lambda: judge.now)


def test_a_joining_candidate_that_takes_all_the_time_wins_by_its_value_alone(tmp_path: Path) -> None:
    slow = Candidate("alone", {"value": 0.05}, "other")
    judge = Pretended(lambda one: 1000.0 if one.name == "alone" else SECONDS, cost=lambda one: Cost(SECONDS, 0.01))
    outcome = searched(tmp_path, judge, [*candidates(6, ("same",)), slow], seconds=30).run()
    assert outcome.trials[0].name == "c5"


def test_the_first_candidate_is_trained_where_no_time_is_left(tmp_path: Path) -> None:
    judge = Pretended(each=10.0)  # the estimate takes more than the budget
    assert searched(tmp_path, judge, candidates(3), seconds=5).run().trials[0].value is not None


def test_a_failed_write_stops_a_search_and_counts_against_no_candidate(tmp_path: Path) -> None:
    judge, train = Pretended(), Pretended.train

    def full(*given: Any, **how: Any) -> float:
        raise OSError("no space left on device")

    judge.train = full  # type: ignore[method-assign]
    with pytest.raises(OSError, match="no space left"):
        searched(tmp_path, judge, candidates(3), trials=4).run()
    judge.train = partial(train, judge)  # type: ignore[method-assign]
    outcome = searched(tmp_path, judge, candidates(3), trials=4).run()
    assert [trial.error for trial in outcome.trials] == [""] * 3


def test_a_rung_keeps_the_best_third_and_trains_it_for_longer(tmp_path: Path) -> None:
    judge = Pretended()
    outcome = searched(tmp_path, judge, candidates(9), trials=13).run()
    assert outcome.trials[0].name == "c8"
    assert [share for _, share in judge.calls] == [1 / 9] * 9 + [1 / 3] * 3 + [1.0]
    assert {name for name, share in judge.calls if share > 1 / 9} == {"c6", "c7", "c8"}
    assert [trial.name for trial in outcome.trials[:2]] == ["c8", "c7"]


@pytest.mark.parametrize("trials", [1, 2, 3, 4, 5, 8, 13, 40])
def test_a_search_has_at_most_the_trials_given(tmp_path: Path, trials: int) -> None:
    judge = Pretended()
    searched(tmp_path, judge, candidates(12, "ab"), trials=trials).run()
    assert 1 <= len(judge.calls) <= trials
    assert len(judge.trained) >= min(trials, 3), "it compares models"
    assert judge.calls[-1][1] == 1.0, "the last training is a whole one"
    assert judge.finals == [call for call in judge.calls if call[1] == 1.0]


@pytest.mark.parametrize("kinds", ["a", "ab", "abbb", "abcbbbb", "abcdefghijkl"])
def test_more_trials_never_compare_fewer_models(tmp_path: Path, kinds: str) -> None:
    compared = []
    for trials in range(1, 41):
        judge = Pretended()
        searched(tmp_path / str(trials), judge, candidates(12, kinds), trials=trials).run()
        compared.append(len(judge.trained))
        assert len(judge.trained) > 4 or judge.finals == judge.calls, "each of a few is trained to its end"
    assert compared == sorted(compared)
    assert compared[:6] == [1, 2, 3, 4, 4, 4]


@pytest.mark.parametrize("seconds", [5.0, 30.0, 60.0, 119.0])
def test_a_search_takes_its_seconds_or_until_the_winner_is_trained(tmp_path: Path, seconds: float) -> None:
    judge = Pretended()
    outcome = searched(tmp_path, judge, candidates(12), seconds=seconds).run()
    assert judge.now <= seconds * (1 + 1e-9)
    assert judge.now >= 0.9 * seconds or outcome.trials[0].share == 1.0
    assert outcome.trials[0].name in dict(judge.finals), "its schedule has ended"


def test_time_for_everything_trains_every_candidate_once_and_ends_early(tmp_path: Path) -> None:
    judge = Pretended()
    searched(tmp_path, judge, candidates(5), seconds=1000.0).run()
    assert sorted(judge.calls) == [(f"c{i}", 1.0) for i in range(5)]
    assert judge.now == pytest.approx(5 * SECONDS)


def test_short_time_leaves_out_the_last_candidates_but_not_another_kind(tmp_path: Path) -> None:
    judge = Pretended()
    some = [*candidates(11), Candidate("other", {"value": 0.1}, "other")]
    searched(tmp_path, judge, some, seconds=12.0).run()
    tried = {name for name, _ in judge.calls}
    assert {"c0", "c1", "other"} <= tried
    assert "c10" not in tried


@pytest.mark.parametrize("budget", [{"trials": 30}, {"seconds": 60.0}], ids=str)
def test_the_only_one_of_its_kind_meets_the_best_of_another_in_the_second_rung(
    tmp_path: Path, budget: dict[str, float]
) -> None:
    judge = Pretended()
    some = [Candidate("alone", {"value": 0.9}, "other"), *candidates(6)]
    searched(tmp_path, judge, some, **budget).run()
    order = [name for name, _ in judge.calls]
    assert order.index("alone") >= 6, "the first rung is for the six of one kind"
    assert {"c4", "c5", "alone"} == set(order[6:9])
    assert order[9] == "c5"


def test_every_kind_has_the_same_time_where_they_meet(tmp_path: Path) -> None:
    """A model alone of its kind has nothing of the first rung, and may learn slowly at first."""
    alone = [Candidate(kind, {"value": 0.1}, kind) for kind in ("one", "other")]
    search = searched(tmp_path, Pretended(lambda one: 300.0), [*candidates(6, ("many",)), *alone], seconds=120.0)
    search.run()
    kinds, before = dict[str, float](), sum(trial.spent for trial in search.ended if not trial.rung)
    for trial in search.ended:
        if trial.rung == 1:
            kind = search.candidates[trial.name].kind
            kinds[kind] = kinds.get(kind, 0.0) + trial.spent
    assert kinds == {kind: pytest.approx((120.0 - before) / 9) for kind in ("many", "one", "other")}


@pytest.mark.parametrize("seconds", [300.0, 900.0])  # the time left is for more than half of a training, or for less
def test_time_left_is_for_another_kind_that_learns_slowly_before_it_is_for_neighbours(
    tmp_path: Path, seconds: float
) -> None:
    slow = Candidate("slow", {"value": 1.0}, "other")  # half of it at first
    many = [one._replace(settings={"value": 0.6}) for one in candidates(6, ("same",))]
    near = [Candidate(f"near {one.name}", {"value": 0.61}, "same", one.name) for one in many]
    third = Candidate("third", {"value": 0.1}, "third")  # takes a part of the rung where they meet
    judge = Pretended(lambda one: seconds if one.name in ("slow", "third") else SECONDS)
    outcome = searched(tmp_path, judge, [*many, slow, third, *near], seconds=200).run()
    assert outcome.trials[0].name == "slow"
    order = [name for name, _ in judge.calls]
    last = len(order) - order[::-1].index("slow")
    assert order.count("slow") > 1
    assert not any(name.startswith("near") for name in order[:last])


def test_a_candidate_that_stops_early_is_not_trained_again(tmp_path: Path) -> None:
    class Early(Pretended):
        def train(self, candidate: Candidate, share: float, *, final: bool) -> tuple[float, float]:
            return super().train(candidate, share, final=final)[0], 1.0

    judge = Early()
    outcome = searched(tmp_path, judge, candidates(6, ("a", "b")), seconds=40).run()
    assert {trial.share for trial in outcome.trials} == {1.0}
    assert len({name for name, _ in judge.calls}) == len(judge.calls)


def test_the_pace_is_known_before_the_last_training_of_a_model_that_starts_slowly(tmp_path: Path) -> None:
    """Its first training compiles kernels, so that its pace by that alone would end the last one too early."""

    class Compiling(Pretended):
        def train(self, candidate: Candidate, share: float, *, final: bool) -> tuple[float, float]:
            self.now += 10.0 if candidate.name == "slow" and candidate.name not in self.trained else 0.0
            return super().train(candidate, share, final=final)

    slow = Candidate("slow", {"value": 2.0}, "other")
    judge = Compiling(lambda one: 100.0 if one.name == "slow" else SECONDS)
    searched(tmp_path, judge, [*candidates(6, ("same",)), slow], seconds=120).run()
    assert dict(judge.finals)["slow"] > 0.7
    assert [name for name, _ in judge.finals].count("slow") == 1


def test_a_tie_names_no_winner() -> None:
    a, b, c = (Trial(0, name, 1.0, value, 1.0) for name, value in (("a", 0.9), ("b", 0.90001), ("c", 0.5)))
    assert "'a' has the highest" in Outcome("mrr", [a, c]).reason
    assert Outcome("mrr", [a, c, b]).reason == "'a' is kept with validation mrr 0.9000; 'b' is no worse with 0.9000"


def test_a_candidate_that_cannot_end_in_time_is_left_out_with_a_reason(tmp_path: Path) -> None:
    judge = Pretended(lambda one: 1e6 if one.kind == "slow" else SECONDS)
    outcome = searched(tmp_path, judge, [*candidates(3), Candidate("s", {"value": 1.0}, "slow")], seconds=30).run()
    assert "s" not in judge.trained
    assert outcome.trials[-1].error.startswith("its shortest training takes about 10000 s, and ")
    slow = Candidate("s", {"value": 1.0}, "slow")
    with pytest.raises(InputError, match=r"shortest training takes about 10000 s, .*; give it --minutes 334, or"):
        searched(tmp_path / "b", judge, [slow], seconds=30).run()
    assert searched(tmp_path / "c", judge, [slow], seconds=60 * 334).run().trials[0].value is not None


@pytest.mark.parametrize(("seconds", "fits"), [(45.0, True), (35.0, False)])
def test_a_slow_candidate_leaves_the_best_one_the_time_to_end_its_training(
    tmp_path: Path, seconds: float, fits: bool
) -> None:
    judge = Pretended(lambda one: 25.0 if one.kind == "slow" else SECONDS)
    judge.estimate = lambda one: Cost(judge.seconds(one), 1.0 if one.kind == "slow" else 0.01)
    some = [*candidates(3), Candidate("slow", {"value": 2.0}, "slow")]
    outcome = searched(tmp_path, judge, some, seconds=seconds).run()
    assert ("c2", 1.0) in judge.calls
    assert (("slow", 1.0) in judge.calls) == fits
    assert outcome.trials[0].name == ("slow" if fits else "c2")


def test_another_kind_is_tried_also_where_the_best_could_use_all_the_time(tmp_path: Path) -> None:
    judge = Pretended(lambda one: 300.0, cost=lambda one: Cost(300.0, 0.05 if one.kind == "slow" else 0.001))
    some = [*candidates(6), Candidate("slow", {"value": 2.0}, "slow")]
    assert searched(tmp_path, judge, some, seconds=60.0).run().trials[0].name == "slow"


@pytest.mark.parametrize(("budget", "why"), [({"trials": 4}, "no training"), ({"seconds": 4.0}, "no time")], ids=str)
def test_a_candidate_without_a_trial_says_why(tmp_path: Path, budget: dict[str, float], why: str) -> None:
    judge = Pretended()
    some = [
        Candidate("large", {"value": 2.0}, "large", omitted="it takes a GPU"),
        *candidates(9),
        *followed(9, 2.0)[9:],
    ]
    for _ in range(2):  # again from the journal
        found = {one.name: one.error for one in searched(tmp_path, judge, some, **budget).run().trials}
    assert found["large"] == "it takes a GPU"
    assert found["c8"] == f"{why} was left for it"
    assert not {"large", "c8"} & set(judge.trained)
    assert set(found) == {one.name for one in some if not one.after}
    assert (tmp_path / "search" / "journal.jsonl").read_text().count("it takes a GPU") == 1


def test_settings_that_do_not_go_together_lose(tmp_path: Path) -> None:
    some = [Candidate("bad", {"value": None}), *candidates(3)]
    outcome = searched(tmp_path, Pretended(), some, trials=6).run()
    assert outcome.trials[0].name == "c2"
    assert outcome.trials[-1].error == "these settings do not go together"


def test_a_slow_search_that_is_stopped_keeps_its_minutes(tmp_path: Path) -> None:
    """The seconds before a stop, in a trial or in an estimate, count."""
    stops = [True]

    def cost(candidate: Candidate) -> Cost:
        if stops and stops.pop():
            raise Interrupted
        return Cost(SECONDS, 0.01)

    judge = Pretended(lambda one: 3 * SECONDS, stop_after=2, cost=cost, each=1.0)
    for _ in range(2):
        with pytest.raises(Interrupted):
            searched(tmp_path, judge, candidates(4), seconds=60).run()
    outcome = searched(tmp_path, judge, candidates(4), seconds=60).run()
    assert judge.now <= 60 * 1.01
    assert sum(trial.spent for trial in outcome.trials) == pytest.approx(judge.now)


@pytest.mark.parametrize("budget", [{"trials": 17}, {"seconds": 40.0}, {"seconds": 119.0}], ids=str)
def test_a_stopped_search_trains_as_one_that_is_not_stopped(tmp_path: Path, budget: dict[str, float]) -> None:
    """A trial goes on to its share, so that no stop tells another pace or lets a rate fall twice."""
    some = [*candidates(6), Candidate("alone", {"value": 2.0}, "other")]
    whole = Pretended(seconds := lambda one: SECONDS + one.settings["value"])
    expected = searched(tmp_path / "whole", whole, some, **budget).run()
    for number in range(1, len(whole.calls) + 1):
        folder, judge = tmp_path / str(number), Pretended(seconds, stop_after=number)
        with pytest.raises(Interrupted):
            searched(folder, judge, some, **budget).run()
        with (folder / "search" / "journal.jsonl").open("a") as journal:
            journal.write('{"event": "en')  # as a kill leaves it
        found = searched(folder, judge, some, **budget).run()
        assert [trial[:2] for trial in found.trials] == [trial[:2] for trial in expected.trials]
        assert judge.calls.pop(number) == judge.calls[number - 1]
        assert [name for name, _ in judge.calls] == [name for name, _ in whole.calls]
        assert [share for _, share in judge.calls] == pytest.approx([share for _, share in whole.calls])
        assert judge.now == pytest.approx(whole.now)
        assert len(set(judge.finals)) == len(dict(judge.finals)), "a rate falls once"
        assert searched(folder, judge, some, **budget).run() == found
        assert len(judge.calls) == len(whole.calls), "a finished search trains no more"


@pytest.mark.parametrize("line", [b"\xff", b"{", b"[]", b"null", b"{}", b'{"event": "end"}', b'{"event": "search"}'])
def test_a_damaged_journal_is_one_sentence(tmp_path: Path, line: bytes) -> None:
    searched(tmp_path, Pretended(), candidates(3), trials=3).run()
    journal = tmp_path / "search" / "journal.jsonl"
    whole = journal.read_bytes()
    for content in (line + b"\n" + whole, whole + line + b"\n"):
        journal.write_bytes(content)
        for use in (journalled, lambda folder: searched(folder, Pretended(), candidates(3), trials=3)):
            with pytest.raises(InputError, match=r"is damaged: search/journal\.jsonl: "):
                use(tmp_path)


def test_a_search_whose_folder_is_removed_ends_in_one_sentence_and_leaves_no_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "search" / "journal.jsonl", {"goal": "mrr", "budget": Budget(trials=1)})
    shutil.rmtree(tmp_path / "search")
    (tmp_path / "search" / "a").mkdir(parents=True)  # of the candidate under way
    with pytest.raises(InputError, match="was removed while the search ran; the same command begins anew"):
        journal.add("rung", field=["a"], floor=0.0, ahead=1)
    assert not journal.path.exists()


def test_a_journal_cut_short_is_whole_again_even_if_the_disk_is_still_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = searched(tmp_path, Pretended(), candidates(3), trials=3).run()
    journal = tmp_path / "search" / "journal.jsonl"
    cut = journal.read_bytes()[:-5]
    journal.write_bytes(cut)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", lambda path, text, **how: path.write_bytes(b""))
        assert journalled(tmp_path) is not None
    assert journal.read_bytes() == cut
    assert searched(tmp_path, Pretended(), candidates(3), trials=3).run().trials[0].name == expected.trials[0].name


@pytest.mark.parametrize(("goal", "best"), [("likelihood", "late"), ("mrr", "lucky")])
def test_only_where_folds_judge_the_winner_has_half_the_training_of_the_last_rung(goal: str, best: str) -> None:
    """Few folds of a cross-validation may be lucky."""
    trials = [Trial(0, "lucky", 0.1, 0.9, 1.0), Trial(0, "whole", 1.0, 0.7, 1.0), Trial(0, "last", 0.1, 0.5, 1.0)]
    trials += [Trial(1, "last", 0.5, 0.6, 1.0), Trial(1, "other", 0.0, None, 0.0, "too slow")]
    trials += [Trial(2, "late", 0.3, 0.8, 1.0)]
    fields = [["lucky", "whole", "last"], ["last", "other"]]
    lines = [{"event": "search", "goal": goal}, *({"event": "rung", "field": field} for field in fields)]
    lines += [{"event": "end", **trial._asdict()} for trial in trials]
    others = [name for name in ("lucky", "late", "whole", "last", "other") if name != best]
    assert [trial.name for trial in standings(lines)] == [best, *others]


def test_a_candidate_faster_than_estimated_has_its_time_nevertheless(tmp_path: Path) -> None:
    judge = Pretended(cost=lambda one: Cost(20 * SECONDS, 0.01))
    outcome = searched(tmp_path, judge, [*candidates(6), Candidate("alone", {"value": 2.0}, "other")], seconds=60).run()
    assert outcome.trials[0].name == "alone"
    assert outcome.trials[0].share == 1.0
    assert judge.now > 40, "the time left goes to the others"


@pytest.mark.parametrize("times", [1.5, 3.0, 8.0])
def test_the_rate_of_a_winner_falls_though_it_is_slower_than_estimated(tmp_path: Path, times: float) -> None:
    judge = Pretended(lambda one: times * SECONDS, cost=lambda one: Cost(SECONDS, 0.01))
    alone = Candidate("alone", {"value": 2.0}, "other")
    assert searched(tmp_path, judge, [*candidates(6), alone], seconds=30).run().trials[0].name in dict(judge.finals)


def test_a_trial_that_the_estimate_has_trained_already_does_not_tell_the_pace(tmp_path: Path) -> None:
    search = searched(tmp_path, Pretended(each=2.0), candidates(2), seconds=100)
    assert search.cost("c0").seconds == SECONDS
    search._end(Trial(0, "c0", 0.2, 0.5, 0.1))
    assert search.cost("c0").seconds == SECONDS
    search._end(Trial(1, "c0", 0.5, 0.5, 5.9))
    assert search.cost("c0").seconds == pytest.approx(5.9 / 0.3)


@pytest.mark.parametrize(
    ("budget", "leads", "tried"),
    [
        ({"trials": 30}, "c4", False),
        ({"seconds": 10.0}, "c4", False),
        ({"seconds": 70.0}, "c4", True),
        ({"seconds": 70.0}, "c3", False),
    ],
)
def test_a_follower_has_time_left_over_alone_where_its_candidate_leads(
    tmp_path: Path, budget: dict[str, float], leads: str, tried: bool
) -> None:
    judge = Pretended()
    some = [*candidates(5), *(Candidate(f"late {i}", {"value": 2.0 + i}, after=leads) for i in range(2))]
    outcome = searched(tmp_path, judge, some, **budget).run()
    assert ("late 0" in judge.trained) is tried
    assert (outcome.trials[0].name == "late 1") is tried, "the second follows too, where the first has won"


def test_rounding_does_not_refuse_a_candidate_all_of_the_time_left(tmp_path: Path) -> None:
    numbers = random.Random(0)
    for number in range(100):
        cost, left = numbers.uniform(20, 90), numbers.uniform(5, 20)
        search = searched(tmp_path / str(number), Pretended(lambda one, cost=cost: cost), candidates(2), seconds=left)  # type: ignore[misc]
        search._end(Trial(0, "c0", 0.1, 0.5, 0.0))
        assert search._goes_on(1, "c1", search.left)


def test_a_candidate_that_is_estimated_and_left_out_is_tried_where_time_is_left(tmp_path: Path) -> None:
    judge = Pretended(cost=lambda one: Cost(SECONDS if one.name == "alone" else 5 * SECONDS, 0.01), each=0.1)
    search = searched(tmp_path, judge, [*candidates(2), Candidate("alone", {"value": 0.1}, "other")], seconds=100)
    search.cost("alone")
    search._leave_out("alone", "there is no time")
    search._try(1, "c1", 1.0, final=True)
    assert search._next({"c0"}) == "alone"


def followed(number: int, *values: float | None) -> list[Candidate]:
    """Candidates of which the best has others that follow it."""
    some = candidates(number)
    return [*some, *(Candidate(f"after {i}", {"value": one}, "", some[-1].name) for i, one in enumerate(values))]


def test_a_follower_that_fails_leaves_the_time_to_the_next(tmp_path: Path) -> None:
    judge = Pretended()
    outcome = searched(tmp_path, judge, followed(3, None, 2.0), seconds=200).run()
    assert outcome.trials[0].name == "after 1"
    assert next(one.error for one in outcome.trials if one.name == "after 0") == "these settings do not go together"


@pytest.mark.parametrize("failing", ["after 0", "c0", "c2"])
def test_a_candidate_whose_cost_cannot_be_found_is_left_out(tmp_path: Path, failing: str) -> None:

    def cost(candidate: Candidate) -> Cost:
        if candidate.name == failing:
            raise InputError("it does not fit into memory")
        return Cost(SECONDS, 0.01)

    for _ in range(2):  # again from the journal
        outcome = searched(tmp_path, Pretended(cost=cost), followed(3, 2.0, 3.0), seconds=200).run()
        assert [(one.name, one.error) for one in outcome.trials if one.error] == [
            (failing, "it does not fit into memory")
        ]
        assert outcome.trials[0].share == 1.0


def test_no_cost_is_found_once_the_time_is_gone(tmp_path: Path) -> None:
    asked = list[float]()
    judge = Pretended(cost=lambda one: asked.append(judge.now) or Cost(SECONDS, 0.01), each=0.5)
    searched(tmp_path, judge, followed(12, *([0.5] * 8)), seconds=30).run()
    assert asked
    assert max(asked) - 0.5 < 30, "when an estimate began"
