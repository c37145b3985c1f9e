// What the errors of a device, as LibTorch throws them, say, and what of the device itself.
//
// Pure.

#pragma once

#include <exception>
#include <optional>
#include <string>

#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

/// What helps where a device is lost to its process.
inline constexpr const char* kDeviceFix =
    "look at this machine's devices (nvidia-smi -q -d ECC, the kernel's log for Xid); where the "
    "same comes on other machines too, a kernel reads or writes where it must not";

/// Whether after this error nothing runs on the device any more in this process: an error that
/// stays with CUDA's context (an address that is none, an instruction that is none, a failed
/// assertion), or one of the hardware (uncorrectable ECC or NVLink errors, a device that is gone).
/// Numbers are those of `cudaError_t` (driver_types.h), for which CUDA says that the process has to
/// end. A wrong launch or too little memory is none of them.
bool is_device_lost(const std::exception& thrown);

/// Whether there was no memory for it, of the device's or of the host's for it (`cudaMalloc`,
/// `cudaHostAlloc`).
bool is_out_of_memory(const std::exception& thrown);

/// What helps where LibTorch refuses an operator because of its order.
inline constexpr const char* kIndeterminateFix =
    "where a plug-in computes there, use another operator; or train with train.deterministic = "
    "false: bits may then differ from run to run";

/// Where LibTorch says of an operator that it gives the same bits each time in no form that the
/// device has, which `choose_operators` forbids: the same in a sentence. Else nothing.
std::optional<std::string> indeterminate_operator(const std::string& words);

/// The first line of what it says: without where in LibTorch it was thrown.
std::string words_of(const std::exception& thrown);

/// What a device threw that no work of a stage did.
Error device_failure(const std::exception& thrown);

}  // namespace troupe::engine
