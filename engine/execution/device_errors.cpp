#include "engine/execution/device_errors.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <new>

#include "runtime/vocabulary/first_line.hpp"

namespace troupe::engine {

bool is_device_lost(const std::exception& thrown) {
  const auto* error = dynamic_cast<const c10::AcceleratorError*>(&thrown);
  if (error == nullptr) return false;
  // Devices unavailable; uncorrectable ECC and NVLink errors and one that was contained; from an
  // illegal address to a failed launch, but for what only a launch was refused for (701 to 709, 711
  // to 713); leaked tensor memory, a lost server of shared GPUs, an external device; unknown.
  constexpr std::array<std::int32_t, 17> kLost{46,  214, 220, 226, 700, 702, 710, 714, 715,
                                               716, 717, 718, 719, 721, 810, 911, 999};
  return std::find(kLost.begin(), kLost.end(), error->get_error_code()) != kLost.end();
}

bool is_out_of_memory(const std::exception& thrown) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&thrown) != nullptr) return true;
  if (dynamic_cast<const std::bad_alloc*>(&thrown) != nullptr) return true;
  constexpr std::int32_t kMemoryAllocation = 2;
  const auto* error = dynamic_cast<const c10::AcceleratorError*>(&thrown);
  return error != nullptr && error->get_error_code() == kMemoryAllocation;
}

std::optional<std::string> indeterminate_operator(const std::string& words) {
  // LibTorch's own words go on about settings of Python.
  const auto end = words.find(" does not have a deterministic implementation");
  if (end == std::string::npos) return std::nullopt;
  return "operator '" + words.substr(0, end) + "' has no fixed order on its device";
}

std::string words_of(const std::exception& thrown) {
  const auto* error = dynamic_cast<const c10::Error*>(&thrown);
  return first_line(error != nullptr ? error->what_without_backtrace() : thrown.what());
}

Error device_failure(const std::exception& thrown) {
  return {Errc::internal, "the device failed: " + words_of(thrown), {}, {}};
}

}  // namespace troupe::engine
