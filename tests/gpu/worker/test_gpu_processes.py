# SPDX-License-Identifier: Apache-2.0
"""Ranks that are processes with a GPU each, over NCCL, give the results of transformers, and a lost rank ends the group
in time: the tests of tests/parity/test_device_processes.py.

A test needs as many GPUs as it has ranks. Nodes share them and count as separate hosts for NCCL, which then uses
sockets: with one rank a node one GPU is enough.
"""

from test_device_processes import (  # noqa: F401
    test_a_lost_rank_ends_the_group_in_time_whatever_the_device_waits_for,
    test_a_rank_lost_during_graph_replay_ends_the_replica_in_time,
    test_a_server_of_any_concurrency_captures_its_graphs_twice,
    test_decode_steps_of_a_tensor_parallel_group_are_captured_as_cuda_graphs,
    test_devices_of_several_nodes_say_what_transformers_says,
    test_models_that_keep_no_keys_are_served_on_devices,
    test_ranks_of_several_nodes_agree_on_cuda_graph_capture,
    test_ranks_with_a_device_each_say_what_transformers_says,
    test_with_the_cuda_kernels_too,
)
from test_devices import test_more_ranks_as_processes_than_devices_are_refused_before_anything_is_loaded  # noqa: F401
