// SPDX-License-Identifier: Apache-2.0
#include "planner/hardware.h"

#include <array>
#include <cstdio>

namespace pm {

namespace {

constexpr double giga = 1e9, tera = 1e12, counted = 0.95 * giga;

// NVLink of the second, third and fourth generation carries 150, 300 and 450 GB/s in one direction; PCIe x16
// of 3.0, 4.0 and 5.0 carries 16, 32 and 64.
constexpr std::array<Product, 15> products{{
    {"Tesla-V100-SXM2-16GB", 16 * counted, 900 * giga, 125 * tera, 150 * giga, true},
    {"Tesla-V100-SXM2-32GB", 32 * counted, 900 * giga, 125 * tera, 150 * giga, true},
    {"Tesla-V100-PCIE-16GB", 16 * counted, 900 * giga, 112 * tera, 16 * giga, false},
    {"Tesla-T4", 16 * counted, 300 * giga, 65 * tera, 16 * giga, false},
    {"NVIDIA-A10", 24 * counted, 600 * giga, 125 * tera, 32 * giga, false},
    {"NVIDIA-A30", 24 * counted, 933 * giga, 165 * tera, 32 * giga, false},
    {"NVIDIA-A40", 48 * counted, 696 * giga, 149.7 * tera, 32 * giga, false},
    {"NVIDIA-A100-SXM4-40GB", 40 * counted, 1555 * giga, 312 * tera, 300 * giga, true},
    {"NVIDIA-A100-SXM4-80GB", 80 * counted, 2039 * giga, 312 * tera, 300 * giga, true},
    {"NVIDIA-A100-PCIE-40GB", 40 * counted, 1555 * giga, 312 * tera, 32 * giga, false},
    {"NVIDIA-A100-80GB-PCIe", 80 * counted, 1935 * giga, 312 * tera, 32 * giga, false},
    {"NVIDIA-L4", 24 * counted, 300 * giga, 121 * tera, 32 * giga, false},
    {"NVIDIA-L40S", 48 * counted, 864 * giga, 362 * tera, 32 * giga, false},
    {"NVIDIA-H100-80GB-HBM3", 80 * counted, 3350 * giga, 989 * tera, 450 * giga, true},
    {"NVIDIA-H200", 141 * counted, 4800 * giga, 989 * tera, 450 * giga, true},
}};

HardwareValue known(const HardwareValue& given, double table, double otherwise) {
  if (given.value > 0) return given;
  return table > 0 ? HardwareValue{table, "product table"} : HardwareValue{otherwise, "assumed"};
}

std::string decimal(double value, const char* unit) {
  char text[48];
  std::snprintf(text, sizeof text, "%.*f %s", value < 10 ? 1 : 0, value, unit);
  return text;
}

}  // namespace

const Product* product_of(std::string_view label) {
  for (const Product& product : products) {
    if (label == product.name) return &product;
  }
  return nullptr;
}

HardwareValues hardware_values(const Hardware& hardware) {
  const bool gpu = hardware.kind == DeviceKind::GPU;
  const Product* product = gpu ? product_of(hardware.product) : nullptr;
  HardwareValues out;
  out.memory_bandwidth =
      known(hardware.memory_bandwidth, product ? product->bandwidth : 0, gpu ? 500 * giga : 10 * giga);
  out.flops = known(hardware.flops, product ? product->flops : 0, gpu ? 60 * tera : 0.1 * tera);
  out.link_bandwidth = known(hardware.link_bandwidth, product ? product->link : 0, gpu ? 12 * giga : 5 * giga);
  out.link_latency = known(hardware.link_latency, 0, product && product->switched ? 10e-6 : gpu ? 30e-6 : 20e-6);
  out.node_bandwidth = known(hardware.node_bandwidth, 0, 1.25 * giga);
  out.node_latency = known(hardware.node_latency, 0, 100e-6);
  out.host_bandwidth = {12 * giga, "assumed"};
  out.file_bandwidth = {0.6 * giga, "assumed"};  // what Offload reads of a disk that gives 1.1 GB/s: bench/sharded.sh
  out.host_memory = hardware.host_memory;
  return out;
}

Hardware with_memory(Hardware hardware) {
  const Product* product =
      hardware.kind == DeviceKind::GPU && hardware.device_memory <= 0 ? product_of(hardware.product) : nullptr;
  if (!product) return hardware;
  hardware.device_memory = static_cast<int64_t>(product->memory);
  hardware.memory_source = "product table";
  return hardware;
}

std::vector<UsedHardwareValue> listed(const HardwareValues& f) {
  std::vector<UsedHardwareValue> out{
      {"memory bandwidth", "bytes/s", f.memory_bandwidth}, {"16-bit operations", "flop/s", f.flops},
      {"link bandwidth", "bytes/s", f.link_bandwidth},     {"link latency", "s", f.link_latency},
      {"node bandwidth", "bytes/s", f.node_bandwidth},     {"node latency", "s", f.node_latency},
      {"host bandwidth", "bytes/s", f.host_bandwidth},     {"file bandwidth", "bytes/s", f.file_bandwidth}};
  if (f.host_memory.value > 0) out.push_back({"host memory", "bytes", f.host_memory});
  return out;
}

std::string assumed(const HardwareValues& f, bool links, bool nodes, bool files) {
  std::string text;
  const auto add = [&](bool used, const HardwareValue& value, const std::string& words) {
    if (used && value.source == "assumed") text += (text.empty() ? "" : ", ") + words;
  };
  add(true, f.memory_bandwidth, "memory " + decimal(f.memory_bandwidth.value / giga, "GB/s"));
  add(true, f.flops, decimal(f.flops.value / tera, "Tflop/s"));
  add(links, f.link_bandwidth, "links " + decimal(f.link_bandwidth.value / giga, "GB/s"));
  add(links, f.link_latency, decimal(f.link_latency.value * 1e6, "us") + " an exchange");
  add(nodes, f.node_bandwidth, "between nodes " + decimal(f.node_bandwidth.value / giga, "GB/s"));
  add(nodes, f.node_latency, decimal(f.node_latency.value * 1e6, "us") + " a hop");
  add(files, f.file_bandwidth, "files " + decimal(f.file_bandwidth.value / giga, "GB/s"));
  return text;
}

}  // namespace pm
