"""One step for each pair of a TensorFlow and a Python, with its progress."""

from environments import StepError, interpreter, pairs
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


def for_each(names, what, step):
    """Calls step(pair, say) for the pairs of these names, or all, and goes on where one fails.

    Says what the step returns, or why it failed. `say` shows what it is doing. Pairs whose Python
    is missing are skipped with a word.

    Returns:
      Whether none has failed.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    failed = []
    with Progress(*columns, TimeElapsedColumn()) as progress:
        chosen = pairs(names)
        task = progress.add_task(what, total=len(chosen))
        for pair in chosen:

            def say(doing, pair=pair):
                progress.update(task, description=f"{pair}: {doing}")

            if interpreter(pair.python) is None:
                progress.console.print(f"{pair}: skipped, as there is no Python {pair.python}")
            else:
                try:
                    progress.console.print(f"{pair}: {step(pair, say)}")
                except StepError as error:
                    failed.append(pair)
                    progress.console.print(f"{pair}: FAILED\n{error}", markup=False)
            progress.advance(task)
        progress.update(task, description=what)
    return not failed
