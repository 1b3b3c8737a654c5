// SPDX-License-Identifier: Apache-2.0
// Determines bandwidths, latencies and memory sizes of devices, links and hosts: given values, else the product table,
// else assumptions. Each value names its source.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "planner/plan.h"

namespace pm {

/// Every hardware parameter that the time models use. Only host_memory may be 0.
struct HardwareValues {
  HardwareValue memory_bandwidth, flops, link_bandwidth, link_latency, node_bandwidth, node_latency;
  HardwareValue host_bandwidth;  ///< bytes/s from the host's memory to one device
  HardwareValue file_bandwidth;  ///< bytes/s that all ranks of a node together read of a checkpoint's files
  HardwareValue host_memory;     ///< 0 where it is unknown
};

/// A row of the product table, from the makers' public data sheets: dense 16-bit tensor operations, bandwidth of one
/// direction of the links.
struct Product {
  std::string_view name;  ///< the node label nvidia.com/gpu.product
  double memory;          ///< usable bytes: the data sheet's 10^9 bytes less 5% for ECC and the driver
  double bandwidth, flops, link;
  bool switched;  ///< the link is NVLink or NVSwitch, not PCIe
};

/// Returns the row of a label such as "NVIDIA-H100-80GB-HBM3"; nothing for products that are not in the table and for
/// slices of one, whose labels end in more (-MIG-1g.10gb, -SHARED).
const Product* product_of(std::string_view label);

/// Returns the hardware parameters. Given values take precedence over the product table, and missing values are
/// assumed: CPU 10 GB/s
/// and 0.1 Tflop/s a rank, links through shared memory 5 GB/s in 20 us; GPU 500 GB/s, 60 Tflop/s, PCIe 12 GB/s in 30
/// us; between nodes 1.25 GB/s (10 Gbit/s) in 100 us; from the host's memory 12 GB/s; from files 0.6 GB/s (what
/// bench/sharded.sh measured of Offload where a plain read past the page cache gave 1.1).
HardwareValues hardware_values(const Hardware&);

/// Returns the hardware with device memory from the product table where it is otherwise unknown.
Hardware with_memory(Hardware);

/// Returns the hardware parameters as a plan lists them.
std::vector<UsedHardwareValue> listed(const HardwareValues&);
/// "memory bandwidth 10.0 GB/s, links 5.0 GB/s in 20 us": the assumed values for messages; empty when nothing is
/// assumed.
std::string assumed(const HardwareValues&, bool links, bool nodes, bool files = false);

}  // namespace pm
