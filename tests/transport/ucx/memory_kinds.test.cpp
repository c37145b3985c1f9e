#include "transport/ucx/memory_kinds.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <vector>

#include "transport/ucx/resources.hpp"
#include "transport/ucx/transport_lists.hpp"

namespace troupe::transport {
namespace {

/// What a context says that takes these.
ucp_context_attr_t taking(std::uint64_t types) {
  ucp_context_attr_t attributes{};
  attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  attributes.memory_types = types;
  return attributes;
}

constexpr std::uint64_t kHost = UCS_BIT(UCS_MEMORY_TYPE_HOST);
constexpr std::uint64_t kCuda = UCS_BIT(UCS_MEMORY_TYPE_CUDA);

TEST_CASE("memory of GPUs is taken where every context takes it", "[transport]") {
  using Contexts = std::vector<ucp_context_attr_t>;
  CHECK(all_take(Contexts{taking(kHost | kCuda)}, MemoryKind::cuda));
  CHECK(all_take(Contexts{taking(kHost | kCuda), taking(kHost | kCuda)}, MemoryKind::cuda));
  CHECK_FALSE(all_take(Contexts{taking(kHost)}, MemoryKind::cuda));
  CHECK_FALSE(all_take(Contexts{taking(kHost | kCuda), taking(kHost)}, MemoryKind::cuda));
  CHECK_FALSE(all_take(Contexts{}, MemoryKind::cuda));
  // AMD's GPUs are no NVIDIA's, and what has no name here nobody takes.
  CHECK_FALSE(all_take(Contexts{taking(kHost | UCS_BIT(UCS_MEMORY_TYPE_ROCM))}, MemoryKind::cuda));
  CHECK_FALSE(all_take(Contexts{taking(~std::uint64_t{0})}, MemoryKind::other));
  for (const auto& contexts : {Contexts{}, Contexts{taking(kHost)}, Contexts{taking(kCuda)}})
    CHECK(all_take(contexts, MemoryKind::host));
}

TEST_CASE("a context that does not say what it takes takes the host's memory", "[transport]") {
  auto silent = taking(kHost | kCuda);
  silent.field_mask = UCP_ATTR_FIELD_REQUEST_SIZE;
  CHECK_FALSE(all_take(std::vector{silent}, MemoryKind::cuda));
  CHECK(all_take(std::vector{silent}, MemoryKind::host));
}

TEST_CASE("UCX has a word for the memory of hosts and GPUs", "[transport]") {
  CHECK(memory_type(MemoryKind::host) == UCS_MEMORY_TYPE_HOST);
  CHECK(memory_type(MemoryKind::cuda) == UCS_MEMORY_TYPE_CUDA);
  CHECK(memory_type(MemoryKind::other) == UCS_MEMORY_TYPE_UNKNOWN);
}

TEST_CASE("this machine's UCX takes the memory that its transports are for", "[transport]") {
  const auto context = start_ucx({divide_transports("all").value().network, "all"});
  REQUIRE(context.ok());
  const auto memory = memory_of(context.value());
  REQUIRE(memory.ok());
  CHECK((memory.value().memory_types & kHost) != 0);
  const auto resources = ucx_resources();
  REQUIRE(resources.ok());
  const bool has_cuda = std::ranges::any_of(
      resources.value(), [](const auto& one) { return one.transport == kCudaTransport; });
  CHECK(all_take(std::vector{memory.value()}, MemoryKind::cuda) == has_cuda);
}

}  // namespace
}  // namespace troupe::transport
