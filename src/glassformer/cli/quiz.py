"""`glassformer quiz`: a shape or a value of the walk is hidden, and the answer is marked."""

from __future__ import annotations

import click


@click.command("quiz")
@click.argument("model", metavar="MODEL")
@click.argument("text", metavar="TEXT")
@click.option("--count", default=5, show_default=True, type=click.IntRange(min=1), help="Questions.")
@click.option("--seed", default=1, show_default=True, type=int, help="Seed of their choice.")
def command(model: str, text: str, count: int, seed: int) -> None:
    """Hide shapes and values of what the model in the folder MODEL computes on TEXT, and mark the answers.

    Answers are read line by line from standard input: a shape as `1 4 5 5`, a value as `0.25`. An empty line passes a
    question, the end of the input ends the quiz. The same seed asks the same.
    """
    import sys

    from glassformer.explain import explain
    from glassformer.explain.quiz import questions

    asked, n_right = questions(explain(model, text, with_views=False), count=count, seed=seed), 0
    n_asked = 0
    for number, question in enumerate(asked, start=1):
        click.echo(f"\n{number}/{len(asked)}  {question.text}\n> ", nl=False)
        line = sys.stdin.readline()
        if not line:
            break
        n_asked += 1
        is_right = question.is_right(line)
        n_right += is_right
        click.echo(f"{'Right.' if is_right else 'No.'} {question.solution}")
    click.echo(f"\nScore: {n_right} of {n_asked}" + (f" ({len(asked) - n_asked} not asked)" * (n_asked < len(asked))))
