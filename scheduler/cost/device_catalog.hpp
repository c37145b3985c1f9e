// Documented peak numbers of devices that need not be here, for computed profiles.
//
// Source: NVIDIA's data sheets of the products (dense rates, without sparsity; SXM forms of A100,
// H100 and H200). Pure values.

#pragma once

#include <span>
#include <string>

#include "runtime/vocabulary/model_config.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::scheduler {

struct DeviceSpec {
  std::string name;           ///< `H100-80G`, as in `--cluster 4x8xH100-80G`.
  double bf16_teraflops = 0;  ///< Tensor cores, dense, fp32 accumulation.
  double fp32_teraflops = 0;  ///< Without tensor cores.
  double fp64_teraflops = 0;  ///< Without tensor cores.
  double memory_gigabytes_per_s = 0;
  Bytes memory;
  double link_gigabytes_per_s = 0;  ///< To the other devices of a node, one direction.

  double teraflops(Dtype dtype) const {
    return dtype == Dtype::bf16   ? bf16_teraflops
           : dtype == Dtype::fp32 ? fp32_teraflops
                                  : fp64_teraflops;
  }
};

/// All devices that are known, in order of age.
std::span<const DeviceSpec> known_devices();

/// The device of this name; the part before the dash suffices where it is unambiguous (`H200`).
///
/// Errors:
/// - not_found: the message names all known devices, the fix the nearest one.
Result<DeviceSpec> find_device(const std::string& name);

/// The device that a driver calls so: `NVIDIA H100 80GB HBM3` is `H100-80G`. Null for all others,
/// also for forms of another speed (PCIe, NVL), parts of a device (MIG), and where memory would
/// have to say which it is and is not named.
const DeviceSpec* reported_device(const std::string& name);

}  // namespace troupe::scheduler
