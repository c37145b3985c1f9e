#include "scheduler/cost/device_catalog.hpp"

#include <vector>

#include "runtime/vocabulary/nearest_word.hpp"

namespace troupe::scheduler {

namespace {

constexpr Bytes gigabytes(std::int64_t count) { return Bytes{count * 1'000'000'000}; }

}  // namespace

std::span<const DeviceSpec> known_devices() {
  // bf16, fp32, fp64 TFLOP/s; memory GB/s; memory; NVLink GB/s in one direction.
  static const std::vector<DeviceSpec> devices{
      {"A100-40G", 312, 19.5, 9.7, 1555, gigabytes(40), 300},
      {"A100-80G", 312, 19.5, 9.7, 2039, gigabytes(80), 300},
      {"A40-48G", 149.7, 37.4, 0.58, 696, gigabytes(48), 56.25},
      {"H100-80G", 989.4, 66.9, 33.5, 3350, gigabytes(80), 450},
      {"H200-141G", 989.4, 66.9, 33.5, 4800, gigabytes(141), 450}};
  return devices;
}

Result<DeviceSpec> find_device(const std::string& name) {
  std::vector<std::string> names;
  std::string listed;
  const DeviceSpec* match = nullptr;
  int matches = 0;
  for (const auto& device : known_devices()) {
    if (device.name == name) return device;
    if (device.name.starts_with(name + "-")) match = &device, ++matches;
    names.push_back(device.name);
    listed += (listed.empty() ? "" : ", ") + device.name;
  }
  if (matches == 1) return *match;
  return Error{Errc::not_found, "no device is called '" + name + "'; known: " + listed, "device",
               name_fix(name, names)};
}

}  // namespace troupe::scheduler
