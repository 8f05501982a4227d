"""How tests wait for what another thread or process does."""

import time


def wait_until(condition, what, seconds=120):
    """Waits until condition() is true, and returns what it is then.

    Raises:
      AssertionError: so many seconds have passed and `what`, a sentence, is still not so.
    """
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"after {seconds} seconds it is not so that {what}")
        time.sleep(0.01)
    return result
