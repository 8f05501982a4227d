# Compiled from ops/numpy, where the functions' signatures are.
from typing import Any

def __getattr__(name: str) -> Any: ...
