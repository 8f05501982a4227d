"""What the tests of NumPy functions share."""

import numpy as np
from absl.testing import parameterized
from hypothesis import strategies as st

from tests import testing
from tf_gc import kernels

testing.set_up_hypothesis(max_examples=60)


def as_bytes(values):
    """A uint8 array."""
    return np.array(values, np.uint8)


def as_floats(values):
    """A float32 array."""
    return np.array(values, np.float32)


# For hypothesis.
INSTRUCTION_SETS = st.sampled_from(kernels.instruction_sets())
INT64 = st.integers(-(2**63), 2**63 - 1)
# Far from overflow.
MODERATE_FLOAT = st.floats(width=32, min_value=-(2.0**100), max_value=2.0**100)
# NaN and infinity too.
ANY_FLOATS = st.lists(st.floats(width=32), max_size=200).map(as_floats)


class InstructionSetTestCase(parameterized.TestCase):
    """Runs on the instruction set that a test asks for."""

    def tearDown(self):
        kernels.set_instruction_set(kernels.instruction_sets()[-1])
        super().tearDown()

    def assert_instruction_sets_agree(self, function):
        """The arrays that the function returns have the same bits on all; returns them."""
        results = []
        for instruction_set in kernels.instruction_sets():
            kernels.set_instruction_set(instruction_set)
            results.append(function())
        for result in results:
            self.assertEqual([x.tobytes() for x in result], [x.tobytes() for x in results[0]])
        return results[0]
