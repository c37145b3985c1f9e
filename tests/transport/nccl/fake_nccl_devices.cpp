// A plug-in for jobs of CPU devices whose sums go by calls to the fake NCCL, which the environment
// variable TROUPE_NCCL_LIBRARY names: each device of each node counts as a GPU of its own.

#include <cstdlib>
#include <string>

#include "runtime/plugins/entry_point.hpp"
#include "tests/transport/nccl/fake_stream.hpp"
#include "transport/nccl/nccl_streams.hpp"

namespace {

using troupe::transport::NcclStream;

troupe::Result<std::shared_ptr<NcclStream>> make(std::int32_t node, std::int32_t index) {
  const char* file = std::getenv("TROUPE_NCCL_LIBRARY");
  if (file == nullptr)
    return troupe::Error{
        troupe::Errc::unavailable, "TROUPE_NCCL_LIBRARY names no fake NCCL", {}, {}};
  return troupe::transport::testing::fake_stream(
      file, "fake gpu " + std::to_string(node) + "." + std::to_string(index));
}

troupe::Status register_all() {
  troupe::transport::register_nccl_streams("cpu", make);
  return troupe::Done{};
}

}  // namespace

TROUPE_PLUGIN(register_all)
