# SPDX-License-Identifier: Apache-2.0
"""Rules of comparison between the worker and the oracle. They hold for all tests and are never loosened for one."""

import numpy

FP32 = 2e-5  # of the largest value of the tensor; the noise of a split is ten times smaller
NEAR_TIE = 1e-4  # of the logits' standard deviation: below, the order of the two best tokens is noise


class Difference(AssertionError):
    """Reports a difference with its position and size."""


def everywhere(_):
    """The places that count when all do."""
    return


def _kept(name, array, places):
    """Selects the compared positions: rows and positions of [rows, length, ..], queries of attentions [rows, heads,
    queries, keys], or of the streams of a decoder.
    """
    mask = places(name)
    if mask is None:
        return array
    keep = mask.astype(bool)
    return numpy.moveaxis(array, -2, 1)[keep] if "attentions." in name else array[keep]


def tensors(ours, theirs, places=everywhere, names=None, tolerance=FP32):
    """Asserts that every tensor of the oracle (or those named) exists with its shape, is finite, and within
    `tolerance` x its largest value. `places(name)` returns the mask [rows, length] of compared positions, None for
    all. Returns the worst ratio.
    """
    worst = 0.0
    for name in names or sorted(theirs):
        if name not in ours:
            raise Difference(f"{name} is missing; there are {sorted(ours)}")
        if ours[name].shape != theirs[name].shape:
            raise Difference(f"{name} has the shape {ours[name].shape}, the oracle's is {theirs[name].shape}")
        a, b = (_kept(name, array, places).astype(numpy.float64) for array in (ours[name], theirs[name]))
        if not numpy.isfinite(a).all():
            raise Difference(f"{name} has values that are not finite")
        largest, off = numpy.abs(b).max(), numpy.abs(a - b)
        if not off.max() <= tolerance * largest:
            place = tuple(map(int, numpy.unravel_index(off.argmax(), off.shape)))
            raise Difference(
                f"{name} is off by {off.max():.3g} at {place} (ours {a[place]:.6g}, oracle {b[place]:.6g}); "
                f"allowed {tolerance:g} x {largest:.3g}"
            )
        worst = max(worst, off.max() / largest if largest > 0 else 0.0)
    return worst


def sixteen_bit(ours, theirs16, theirs32, names, places=everywhere):
    """Asserts that the errors against the fp32 oracle are at most 1.2 times those of Hugging Face's own 16-bit run in
    the root of their mean square, and that the largest is at most twice its largest: which value is the farthest off
    is luck."""
    for name in names:
        a, b16, b32 = (
            _kept(name, array, places).astype(numpy.float64) for array in (ours[name], theirs16[name], theirs32[name])
        )
        for what, most, size in (
            ("in the mean", 1.2, lambda error: numpy.sqrt(numpy.square(error).mean())),
            ("at most", 2, lambda error: numpy.abs(error).max()),
        ):
            off, theirs = size(a - b32), size(b16 - b32)
            if not off <= most * theirs:
                raise Difference(
                    f"{name} is off by {off:.3g} {what} from fp32, Hugging Face's own 16-bit run by {theirs:.3g}"
                )


def greedy(generate, prompt, oracle, near_tie=NEAR_TIE):
    """Asserts that tokens are equal until the oracle's two best are nearly tied (`near_tie`, in standard
    deviations). After a near-tie the worker continues from the oracle's token. `generate(prompt, count)` returns the
    whole sequence. Returns the number of near-ties.
    """
    sequence, gaps = oracle["sequence"], oracle["gaps"]
    given, ties = len(prompt), 0
    while given < len(sequence):
        ours = generate(sequence[:given], len(sequence) - given)
        if ours == sequence:
            return ties
        if ours[:given] != sequence[:given]:
            raise Difference(f"the answer does not begin with its prompt: {ours[:given]} for {sequence[:given]}")
        at = next(
            (i for i in range(given, min(len(ours), len(sequence))) if ours[i] != sequence[i]),
            min(len(ours), len(sequence)),
        )
        gap = gaps[at - len(prompt)] if at < len(sequence) else numpy.inf
        if gap >= near_tie:
            found = ours[at] if at < len(ours) else "the end"
            raise Difference(
                f"token {at - len(prompt)} is {found}, the oracle's is "
                f"{sequence[at] if at < len(sequence) else 'the end'} and leads by {gap:.3g} standard "
                f"deviations"
            )
        given, ties = at + 1, ties + 1
    return ties
