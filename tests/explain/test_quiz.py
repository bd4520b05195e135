"""The quiz: what is shown is enough to answer, answers are marked, and a pipe ends well."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from explain_models import IDS, TEXT, explained

from glassformer.cli import cli
from glassformer.explain.quiz import Question, questions
from tasks.small_models import save_folder

NUMBER = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_folder(tmp_path_factory.mktemp("quiz") / "model")


def solved(question: Question) -> str:
    """The answer, from the text of the question alone."""
    text = question.text
    if "Which shape" in text:
        return ""
    if "Which weight" in text:
        shown = re.findall(r" (\d\.\d{3})(?=  |$)", text.splitlines()[1])
        return f"{1 - sum(map(float, shown)):.3f}"
    if "softmax?" in text:
        score, width = re.findall(rf"is ({NUMBER}), and a head is (\d+)", text)[0]
        return f"{float(score) / math.sqrt(float(width)):.4g}"
    if "ReLU" in text:
        (x,) = re.findall(rf"has ({NUMBER})", text)
        return f"{max(0.0, float(x)):.4g}"
    a, b = re.findall(rf"has ({NUMBER}) at one feature of a token, \S+ ({NUMBER})\.\n", text)[0]
    return f"{float(a) + float(b):.4g}"


@pytest.mark.parametrize("case", IDS)
def test_values_follow_from_the_question_and_shapes_from_the_walk(case: str) -> None:
    explanation = explained(case)
    asked = questions(explanation, count=40, seed=3)
    assert len(asked) > 10 and len({question.text for question in asked}) == len(asked)
    kinds = set()
    for question in asked:
        answer = solved(question)
        shape = " ".join(map(str, explanation.row(question.key).shape))
        kinds.add(bool(answer))
        assert question.is_right(answer or shape), (question, answer)
        assert not question.is_right("") and not question.is_right("9999")
        assert question.tolerance < 0.05 * max(1, *map(abs, question.answer))
        wrong = f"{question.answer[0] + 1.1 * question.tolerance + 0.01}" if answer else shape + " 1"
        assert not question.is_right(wrong), (question, wrong)
    assert kinds == {True, False}


@pytest.mark.parametrize("typed", ["1 4 5 7", "(1, 4, 5, 7)", "1x4x5x7\n", "[1,4,5,7]", "1 × 4 × 5 × 7"])
def test_a_shape_may_be_typed_in_many_ways(typed: str) -> None:
    question = Question(key="", text="", answer=(1, 4, 5, 7), solution="")
    assert question.is_right(typed) and not question.is_right(typed.replace("5", "6"))


def test_a_value_may_be_rounded_but_not_of_the_other_sign() -> None:
    question = Question(key="", text="", answer=(-0.25,), solution="", tolerance=0.01)
    assert question.is_right("-0.25") and question.is_right("−0.255") and question.is_right("-2.5e-1")
    assert not question.is_right("0.25") and not question.is_right("about a quarter")


def test_the_same_seed_asks_the_same() -> None:
    explanation = explained("encoder-decoder")
    first, same, other = (questions(explanation, count=6, seed=seed) for seed in (1, 1, 2))
    assert first == same != other and len(first) == 6


def quiz(model: Path, answers: str, *options: str) -> Result:
    return CliRunner().invoke(cli, ["quiz", str(model), TEXT, *options], input=answers)


def test_answers_come_from_a_pipe_and_are_marked(model: Path) -> None:
    asked = questions(explained("encoder-decoder"), count=5, seed=7)
    answers = [solved(question) or " ".join(f"{size:g}" for size in question.answer) for question in asked]
    answers[0], answers[2] = "", "12345"
    result = quiz(model, "\n".join(answers) + "\n", "--seed", "7")
    assert result.exit_code == 0 and result.output.rstrip().endswith("Score: 3 of 5")
    assert result.output.count("Right.") == 3 and result.output.count("No.") == 2
    assert all(question.solution in result.output for question in asked)


def test_the_end_of_the_input_ends_the_quiz(model: Path) -> None:
    result = quiz(model, "1\n", "--count", "3")
    assert result.exit_code == 0 and result.output.rstrip().endswith("(2 not asked)")
