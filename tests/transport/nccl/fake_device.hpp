// The fake NCCL as tests see it, and streams of its devices.

#pragma once

#include <memory>
#include <string>

#include "transport/nccl/nccl_context.hpp"
#include "transport/nccl/nccl_stream.hpp"

namespace troupe::transport::testing {

/// One of the fake libraries beside the test program.
class FakeNccl {
 public:
  /// `name`: `fake_nccl` or `fake_nccl_old`. Throws where it is not there.
  explicit FakeNccl(const std::string& name = "fake_nccl");

  static std::string file(const std::string& name = "fake_nccl");

  std::shared_ptr<const NcclLibrary> library() const { return library_; }
  void script(const std::string& text) const { script_(text.c_str()); }
  int live() const { return live_(); }
  int misuses() const { return misuses_(); }
  std::string first_misuse() const { return first_misuse_(); }
  int calls(const std::string& function) const { return calls_(function.c_str()); }

  /// A stream of the device with this name.
  std::shared_ptr<NcclStream> stream(const std::string& device) const;

 private:
  std::shared_ptr<const NcclLibrary> library_;
  void (*script_)(const char*);
  int (*live_)();
  int (*misuses_)();
  const char* (*first_misuse_)();
  int (*calls_)(const char*);
};

/// Limits that suit a fake that hangs: short ones.
NcclLimits short_limits();

}  // namespace troupe::transport::testing
