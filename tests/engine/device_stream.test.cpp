// Groups of one GPU over the real NCCL, on the streams and in the memory that jobs have. Without a
// GPU and the library they are skipped.

#include "tests/torch_catch.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <utility>

#include "engine/execution/device_place.hpp"
#include "engine/execution/device_stream.hpp"
#include "engine/execution/nccl_device.hpp"
#include "kernels/gpu_query.hpp"
#include "transport/inproc/hub.hpp"
#include "transport/nccl/nccl_library.hpp"
#include "transport/registry.hpp"

namespace troupe::engine {
namespace {

using transport::NcclSums;

constexpr std::chrono::seconds kEnough{60};

/// Of node 0 alone.
transport::NcclGroupOptions alone(EpochNumber generation, NcclSums sums) {
  transport::NcclGroupOptions options;
  options.name = "one GPU";
  options.members = {0};
  options.rank = 0;
  options.generation = generation;
  options.group_id = 1;
  options.sums = sums;
  return options;
}

/// Four numbers of the device, summed over its only rank: they stay what they are.
Status sum_of_itself(transport::NcclGroup& group, c10::Device place) {
  const auto numbers =
      std::make_shared<at::Tensor>(at::arange(4, at::TensorOptions(at::kFloat).device(place)));
  const at::Tensor before = numbers->cpu();  // They are there, then.
  Status summed = group.all_reduce({numbers->mutable_data_ptr(), numbers->nbytes(), numbers},
                                   transport::Scalar::fp32, transport::within(kEnough));
  if (summed.ok()) CHECK(at::equal(numbers->cpu(), before));
  return summed;
}

TEST_CASE("one GPU sums, splits, begins anew and gives up by the real NCCL", "[engine][gpu]") {
  if (const auto gpus = kernels::query_gpus(); !gpus) SKIP(gpus.error().message);
  if (const auto library = transport::NcclLibrary::load(); !library) SKIP(library.error().message);
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 1);
  const auto place = find_place("cuda", 0);
  INFO((place.ok() ? "" : place.error().message));
  REQUIRE(place.ok());
  transport::TransportOptions options;
  options.self = 0;
  options.hub = std::make_shared<transport::InprocHub>();
  const auto connection = transport::create_transport("inproc", options).value();
  NcclDevice device(*connection, {place.value(), {NodeId{0}, 0}});
  const auto open = [&](NcclSeat before, EpochNumber generation, NcclSums sums) {
    auto seat = device.open(std::move(before), alone(generation, sums), "cluster.sums");
    INFO((seat.ok() ? "" : seat.error().message));
    REQUIRE(seat.ok());
    CHECK(sum_of_itself(*seat.value().group, place.value()).ok());
    return std::move(seat).value();
  };

  NcclSeat seat = open({}, 1, NcclSums::in_rank_order);
  const auto stream = DeviceStream::create(place.value());
  REQUIRE(stream.ok());
  auto part = seat.group->split(0, 2, "its part", stream.value(), transport::within(kEnough));
  INFO((part.ok() ? "" : part.error().message));
  REQUIRE(part.ok());
  CHECK(sum_of_itself(*part.value(), place.value()).ok());
  part.value().reset();

  // Out of the one before, in NCCL's own order; then out of one that was given up.
  seat = open(std::move(seat), 2, NcclSums::as_nccl_likes);
  seat.group->end({Errc::cancelled, "it is given up", {}, {}});
  CHECK_FALSE(sum_of_itself(*seat.group, place.value()).ok());
  seat = open(std::move(seat), 3, NcclSums::in_rank_order);
}

}  // namespace
}  // namespace troupe::engine
