#include "scheduler/cost/device_catalog.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

#include "runtime/vocabulary/nearest_word.hpp"

namespace troupe::scheduler {

namespace {

constexpr Bytes gigabytes(std::int64_t count) { return Bytes{count * 1'000'000'000}; }

/// `H100` of `H100-80G`.
std::string_view model_of(const DeviceSpec& device) {
  const std::string_view name = device.name;
  return name.substr(0, name.find('-'));
}

/// `NVIDIA`, `A100`, `SXM4`, `40GB` of `NVIDIA A100-SXM4-40GB`.
std::vector<std::string_view> words_of(std::string_view name) {
  std::vector<std::string_view> words;
  while (!name.empty()) {
    const auto end = std::min(name.find_first_of(" -"), name.size());
    if (end > 0) words.push_back(name.substr(0, end));
    name.remove_prefix(std::min(end + 1, name.size()));
  }
  return words;
}

/// Whether these words say this device, and nothing that makes it another.
bool is_called(const DeviceSpec& device, const std::vector<std::string_view>& words) {
  const std::string memory = device.name.substr(model_of(device).size() + 1) + "B";
  const auto models = std::ranges::count_if(known_devices(), [&](const DeviceSpec& other) {
    return model_of(other) == model_of(device);
  });
  bool has_model = false, has_memory = models == 1;
  for (const auto word : words) {
    has_model |= word == model_of(device);
    has_memory |= word == memory;
    if (word != model_of(device) && word != memory && word != "NVIDIA" &&
        !word.starts_with("SXM") && !word.starts_with("HBM"))
      return false;
  }
  return has_model && has_memory;
}

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

const DeviceSpec* reported_device(const std::string& name) {
  const auto words = words_of(name);
  for (const auto& device : known_devices())
    if (is_called(device, words)) return &device;
  return nullptr;
}

}  // namespace troupe::scheduler
