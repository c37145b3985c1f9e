#include "tests/transport/nccl/fake_device.hpp"

#include <filesystem>
#include <stdexcept>

#include "tests/transport/nccl/fake_stream.hpp"

namespace troupe::transport::testing {

FakeNccl::FakeNccl(const std::string& name) {
  auto loaded = NcclLibrary::load(file(name));
  if (!loaded) throw std::runtime_error(loaded.error().message);
  library_ = loaded.value();
  find_in(file(name), "fake_nccl_script", script_);
  find_in(file(name), "fake_nccl_live", live_);
  find_in(file(name), "fake_nccl_misuses", misuses_);
  find_in(file(name), "fake_nccl_first_misuse", first_misuse_);
  find_in(file(name), "fake_nccl_calls", calls_);
}

std::string FakeNccl::file(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / ("lib" + name + ".so");
}

std::shared_ptr<NcclStream> FakeNccl::stream(const std::string& device) const {
  // Of the library that this one is: found again by its version.
  const auto* name = library_->can_shrink() ? "fake_nccl" : "fake_nccl_old";
  return fake_stream(file(name), device);
}

NcclLimits short_limits() {
  return {std::chrono::milliseconds(150), std::chrono::milliseconds(1000)};
}

}  // namespace troupe::transport::testing
