"""Ranks that are processes with a GPU each, over NCCL, say what transformers says, and a lost rank ends the group in time: the tests of tests/parity/test_device_processes.py.

A test needs as many GPUs as it has ranks. Nodes share them, as hosts of their own to NCCL, which then goes over sockets: with a rank a node one GPU is enough.
"""
from test_device_processes import (test_a_lost_rank_ends_the_group_in_time_whatever_the_device_waits_for, test_devices_of_several_nodes_say_what_transformers_says,  # noqa: F401
                                   test_a_rank_lost_among_recorded_steps_ends_the_group_in_time, test_models_that_keep_no_keys_are_served_on_devices,
                                   test_ranks_of_several_nodes_agree_on_what_is_recorded, test_ranks_with_a_device_each_say_what_transformers_says,
                                   test_steps_of_a_tensor_group_are_recorded, test_with_the_cuda_kernels_too)
from test_devices import test_more_ranks_as_processes_than_devices_are_refused_before_anything_is_loaded  # noqa: F401
