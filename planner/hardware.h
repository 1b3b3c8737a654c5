// What devices, links and hosts can do: as given, else from the product table, else assumed; each figure with its source.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "planner/plan.h"

namespace pm {

/// Every figure that the time models use, none of them 0 but host_memory.
struct Figures {
  Figure memory_bandwidth, flops, link_bandwidth, link_latency, node_bandwidth, node_latency;
  Figure host_bandwidth;         ///< bytes/s from the host's memory to one device
  Figure file_bandwidth;         ///< bytes/s that all ranks of a node together read of a checkpoint's files
  Figure host_memory;            ///< 0 where it is not known
};

/// A row of the product table, from the makers' public data sheets: dense 16-bit tensor operations, bandwidth of one direction of the links.
struct Product {
  std::string_view name;         ///< the node label nvidia.com/gpu.product
  double memory;                 ///< bytes that can be counted on: the data sheet's 10^9 bytes less 5% for ECC and the driver
  double bandwidth, flops, link;
  bool switched;                 ///< the link is NVLink or NVSwitch, not PCIe
};

/// The row of a label such as "NVIDIA-H100-80GB-HBM3"; nothing for products that are not in the table and for slices of one, whose labels end in more (-MIG-1g.10gb, -SHARED).
const Product* product_of(std::string_view label);

/// Given figures stand; the product table fills in what is not given, and what is still open is assumed: CPU 10 GB/s and 0.1 Tflop/s a rank, links through
/// shared memory 5 GB/s in 20 us; GPU 500 GB/s, 60 Tflop/s, PCIe 12 GB/s in 30 us; between nodes 1.25 GB/s (10 Gbit/s) in 100 us; from the host's memory 12 GB/s;
/// from files 0.6 GB/s (what bench/gathered.sh measured of Offload where a plain read past the page cache gave 1.1).
Figures figures_of(const Hardware&);

/// The hardware with its device memory filled in from the product table where that is not known otherwise.
Hardware with_memory(Hardware);

/// The figures as a plan shows them.
std::vector<UsedFigure> listed(const Figures&);
/// "memory bandwidth 10.0 GB/s, links 5.0 GB/s in 20 us": those that are assumed; empty when none is.
std::string assumed(const Figures&, bool links, bool nodes, bool files = false);

}  // namespace pm
