# SPDX-License-Identifier: Apache-2.0
"""Runs the worker and returns its outputs under the names of the oracle's."""

import numpy
from safetensors.numpy import load_file, save_file


class WorkerRunner:
    """Uses tensor parallelism unless `sizes` are given."""

    def __init__(self, batch, folder):
        self.batch, self.folder = batch, folder

    def forward(self, model, ranks, inputs, **options):
        paths = {"inputs": str(self.folder / "in.safetensors"), "outputs": str(self.folder / "out.safetensors")}
        save_file(inputs, paths["inputs"])
        self.batch.run(
            {
                "model": str(model),
                "ranks": ranks,
                "sizes": f"tensor={ranks}",
                "hidden_states": True,
                "attentions": True,
                **paths,
                **options,
            }
        )
        return load_file(paths["outputs"])

    def generate(self, model, ranks, rows, policy="", sizes="", strategy="", offload_to="", precision=None, **options):
        """Rows are lists of ids, or the inputs of an encoder of images or audio."""
        held = {"precision": precision} if precision else {}
        if isinstance(rows[0], dict):
            held["inputs"] = [str(self.folder / f"row-{i}.safetensors") for i in range(len(rows))]
            for row, path in zip(rows, held["inputs"]):
                save_file({name: numpy.ascontiguousarray(array) for name, array in row.items()}, path)
            rows = []
        return self.batch.run(
            {
                "model": str(model),
                "ranks": ranks,
                "policy": policy,
                "strategy": strategy,
                "offload_to": offload_to,
                "sizes": sizes or f"tensor={ranks}",
                **held,
                "generate": {"input_ids": rows, **options},
            }
        )["sequences"]
