# SPDX-License-Identifier: Apache-2.0
"""Tests of the comparison rules themselves."""

import compare
import numpy
import pytest


class TestCompare:
    good = {"logits": numpy.linspace(-1, 3, 24, dtype=numpy.float32).reshape(2, 3, 4)}

    def differs(self, change, places=compare.everywhere):
        ours = {"logits": self.good["logits"].copy()}
        change(ours)
        with pytest.raises(compare.Difference):
            compare.tensors(ours, self.good, places)

    def test_equal_tensors_are_equal(self):
        assert compare.tensors(self.good, self.good) == 0

    def test_one_value_is_enough_to_differ(self):
        self.differs(lambda ours: ours["logits"].__setitem__((1, 2, 3), 3 + 7e-5))

    def test_not_a_number_differs(self):
        self.differs(lambda ours: ours["logits"].__setitem__((0, 0, 0), numpy.nan))

    def test_a_missing_tensor_differs(self):
        self.differs(lambda ours: ours.clear())

    def test_another_shape_differs(self):
        self.differs(lambda ours: ours.update(logits=ours["logits"][:, :, :1]))

    def test_only_masked_places_are_left_out(self):
        mask = numpy.array([[1, 1, 0], [1, 1, 1]])
        ours = {"logits": self.good["logits"].copy()}
        ours["logits"][0, 2] = numpy.nan
        assert compare.tensors(ours, self.good, lambda _: mask) == 0
        self.differs(lambda ours: ours["logits"].__setitem__((1, 2, 0), 9), lambda _: mask)

    def test_errors_of_16_bits_are_measured_by_their_mean_and_by_the_largest(self):
        exact = {"logits": numpy.zeros((4, 50), numpy.float32)}
        theirs = {"logits": numpy.full((4, 50), 0.1, numpy.float32)}
        compare.sixteen_bit({"logits": -1.1 * theirs["logits"]}, theirs, exact, ["logits"])
        everywhere, one = 1.3 * theirs["logits"], theirs["logits"].copy()
        one[2, 7] = 0.21
        for wrong in (everywhere, one, numpy.full_like(one, numpy.nan)):
            with pytest.raises(compare.Difference):
                compare.sixteen_bit({"logits": wrong}, theirs, exact, ["logits"])

    def test_greedy_steps_over_a_near_tie_with_the_oracles_token_and_over_nothing_else(self):
        oracle = {"sequence": [1, 2, 3, 4], "gaps": [0.5, 1e-5, 0.5]}
        answers = {1: [1, 2, 9, 9], 3: [1, 2, 3, 4]}
        assert compare.greedy(lambda prompt, count: answers[len(prompt)], [1], oracle) == 1
        answers[3] = [1, 2, 3, 5]
        with pytest.raises(compare.Difference):
            compare.greedy(lambda prompt, count: answers[len(prompt)], [1], oracle)

    def test_greedy_wants_the_end_where_the_oracle_ends(self):
        oracle = {"sequence": [1, 2, 3], "gaps": [0.5, 0.5]}
        for wrong in ([1, 2], [1, 2, 3, 4]):
            with pytest.raises(compare.Difference):
                compare.greedy(lambda prompt, count: wrong, [1], oracle)
