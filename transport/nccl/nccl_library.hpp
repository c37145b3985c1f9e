// NCCL, opened at run time: which functions this machine's library has, and its errors in our
// words.
//
// Thread-safe. Once loaded a library stays until the process ends: NCCL starts threads that nobody
// can wait for, so its code must not be unloaded.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/vocabulary/result.hpp"
#include "transport/nccl/nccl_abi.hpp"

namespace troupe::transport {

class NcclLibrary {
 public:
  /// The file that the environment variable TROUPE_NCCL_LIBRARY names, or else `libnccl.so.2`,
  /// which the system's loader looks for.
  static std::string default_file();

  /// Errors: unavailable: there is no such library, a function is missing, or its version is older
  /// than 2.18; the text says which, the fix what to install.
  static Result<std::shared_ptr<const NcclLibrary>> load(const std::string& file = default_file());

  const nccl::Functions& calls() const { return calls_; }            ///< NCCL's functions.
  std::int32_t version() const { return version_; }                  ///< 22809 for 2.28.9.
  bool can_shrink() const { return calls_.comm_shrink != nullptr; }  ///< NCCL 2.27.3 or later.
  bool can_revoke() const { return calls_.comm_revoke != nullptr; }  ///< NCCL 2.28.7 or later.

  /// What a failed call, or the state of a communicator, means: `what` went wrong and NCCL's words
  /// for it. The code is transport_failed, or invalid_argument where NCCL blames the caller.
  Error error(const std::string& what, nccl::Code code) const;

 private:
  NcclLibrary() = default;

  nccl::Functions calls_;
  std::int32_t version_ = 0;
};

/// 22809 as `2.28.9`, and 2708 as `2.7.8`.
std::string nccl_version_text(std::int32_t version);

/// Of a library of this version, what recovery does without: "ncclCommRevoke (from 2.28.7)"...
std::vector<std::string> missing_parts(const NcclLibrary& library);

}  // namespace troupe::transport
