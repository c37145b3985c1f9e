// Streams of an accelerator for NCCL, on the device of tests/accelerator; and groups of one GPU
// over the real NCCL, on the streams and in the memory that jobs have. Without a GPU and the
// library these are skipped.

#include "tests/torch_catch.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "engine/execution/device_errors.hpp"
#include "engine/execution/device_place.hpp"
#include "engine/execution/device_stream.hpp"
#include "engine/execution/nccl_device.hpp"
#include "kernels/gpu_query.hpp"
#include "tests/engine/apart_device.hpp"
#include "transport/collectives/rank_order_sum.hpp"
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

std::shared_ptr<transport::NcclStream> stream_of(c10::Device place) {
  auto made = DeviceStream::create(place);
  INFO((made.ok() ? "" : made.error().message));
  REQUIRE(made.ok());
  return std::move(made).value();
}

TEST_CASE("a device's stream adds up ranks with the bits of a host", "[engine]") {
  using transport::Scalar;
  const auto place = apart().place;
  const auto stream = stream_of(place);
  REQUIRE(stream->make_current().ok());
  const std::vector<std::pair<at::ScalarType, Scalar>> types{{at::kFloat, Scalar::fp32},
                                                             {at::kDouble, Scalar::fp64},
                                                             {at::kBFloat16, Scalar::bf16},
                                                             {at::kLong, Scalar::int64}};
  for (const auto& [type, scalar] : types)
    for (std::size_t output = 0; output < 3; ++output) {
      CAPTURE(c10::toString(type), output);
      // Large, small and large again: another order, or sums in bf16, have other bits.
      std::vector<at::Tensor> hosts, there;
      for (const double factor : {1e4, 1.0, -9e3})
        hosts.push_back(at::arange(1, 301, at::kDouble).sin().mul(factor).to(type));
      for (const at::Tensor& host : hosts) there.push_back(host.to(place));
      std::vector<const void*> at_host, at_device;
      for (const at::Tensor& tensor : hosts) at_host.push_back(tensor.const_data_ptr());
      for (const at::Tensor& tensor : there) at_device.push_back(tensor.const_data_ptr());
      transport::sum_in_rank_order(at_host, 300, scalar, hosts[output].mutable_data_ptr());
      const Status summed =
          stream->launch_sum(at_device, 300, scalar, there[output].mutable_data_ptr());
      INFO((summed.ok() ? "" : summed.error().message));
      REQUIRE(summed.ok());
      for (std::size_t rank = 0; rank < 3; ++rank) CHECK(at::equal(there[rank].cpu(), hosts[rank]));
    }
}

TEST_CASE("a device's stream comes to its marks one after the other", "[engine]") {
  const auto stream = stream_of(apart().place);
  CHECK(stream->handle() != stream_of(apart().place)->handle());
  CHECK(stream->device() == stream_of(apart().place)->device());
  const auto first = stream->mark(), second = stream->mark();
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  CHECK_FALSE(stream->reached(second.value()).value());
  CHECK(stream->reached(second.value()).value());
  CHECK(stream->reached(first.value()).value());  // Which lies before it.
  const auto memory = stream->allocate(64);
  REQUIRE(memory.ok());
  const at::Tensor numbers = at::arange(8, at::kDouble).to(apart().place);
  REQUIRE(
      stream
          ->launch_sum({numbers.const_data_ptr()}, 8, transport::Scalar::fp64, memory.value().get())
          .ok());
  REQUIRE(stream
              ->launch_sum({memory.value().get(), numbers.const_data_ptr()}, 8,
                           transport::Scalar::fp64, numbers.mutable_data_ptr())
              .ok());
  CHECK(at::equal(numbers.cpu(), at::arange(0, 16, 2, at::kDouble)));
}

TEST_CASE("streams that are opened and closed leave alone what a device has", "[engine]") {
  const auto place = apart().place;
  const auto lane = stream_of(place);
  for (int opened = 0; opened < 40; ++opened)  // LibTorch's pool has 32.
    REQUIRE(stream_of(place)->handle() != lane->handle());
}

/// Eight numbers of the device on their way to `host`, on the stream on which it computes.
at::Tensor copy_under_way(c10::Device place, const at::Tensor& host) {
  at::Tensor numbers = at::ones({8}, at::kDouble).to(place);
  host.copy_(numbers, /*non_blocking=*/true);
  return numbers;
}

TEST_CASE("memory for NCCL waits for nothing that computes", "[engine]") {
  const auto place = apart().place;
  const auto stream = stream_of(place);
  const at::Tensor host = at::zeros({8}, at::kDouble);
  const at::Tensor numbers = copy_under_way(place, host);
  REQUIRE(stream->allocate(512).ok());
  REQUIRE(stream->allocate_shared(512).ok());
  CHECK(std::isnan(host[0].item<double>()));  // As nobody has waited for it.
  CHECK(at::equal(numbers.cpu(), at::ones({8}, at::kDouble)));
  CHECK(at::equal(host, at::ones({8}, at::kDouble)));
}

TEST_CASE("what computes may still read memory of NCCL's that was let go of", "[engine]") {
  const auto place = apart().place;
  const auto stream = stream_of(place);
  // More than all else here, so that nobody else takes it meanwhile.
  constexpr std::size_t kBytes = std::size_t{1} << 21;
  const at::Tensor host = at::zeros({8}, at::kDouble);
  const at::Tensor numbers = copy_under_way(place, host);
  auto own = stream->allocate(kBytes);
  REQUIRE(own.ok());
  const auto* const first = own.value().get();
  own.value().reset();
  auto shared = stream->allocate_shared(kBytes);
  REQUIRE(shared.ok());
  CHECK(shared.value().get() == first);  // This stream alone used it.
  shared.value().reset();
  auto other = stream->allocate_shared(kBytes);
  REQUIRE(other.ok());
  CHECK(other.value().get() != first);
  CHECK(at::equal(numbers.cpu(), at::ones({8}, at::kDouble)));  // All of it has been come to.
  CHECK(stream->allocate(kBytes).value().get() == first);
}

TEST_CASE("a stream's lost device fails its call, too little memory the job", "[engine][errors]") {
  const auto stream = stream_of(apart().place);
  const auto before = stream->mark();
  REQUIRE(before.ok());
  // An uncorrectable ECC error and an illegal address; no memory.
  const std::vector<std::pair<std::string, Errc>> errors{
      {"214", Errc::transport_failed}, {"700", Errc::transport_failed}, {"2", Errc::infeasible}};
  for (const auto& [number, code] : errors) {
    CAPTURE(number);
    setenv("APART_CUDA_ERROR", number.c_str(), 1);
    const auto marked = stream->mark();
    const auto reached = stream->reached(before.value());
    unsetenv("APART_CUDA_ERROR");
    REQUIRE_FALSE(marked.ok());
    REQUIRE_FALSE(reached.ok());
    CHECK(marked.error().code == code);
    CHECK((reached.error() == marked.error()));
    const std::string what = code == Errc::infeasible
                                 ? "there is no room on the device for what NCCL moves"
                                 : "the device failed";
    CHECK(marked.error().message == what + ": CUDA error: number " + number);
    CHECK((marked.error().fix == kDeviceFix) == (code == Errc::transport_failed));
  }
  CHECK_FALSE(stream->reached(before.value()).value());
  CHECK(stream->reached(before.value()).value());
}

TEST_CASE("what NCCL finds no room for is no failure of the device", "[engine][errors]") {
  const auto stream = stream_of(apart().place);
  constexpr std::size_t kTooMany = std::size_t{1} << 32;  // 16 GiB, and there are 8.
  const auto few = stream->allocate(sizeof(float));
  REQUIRE(few.ok());
  const auto check = [](const Error& error) {
    CHECK(error.code == Errc::infeasible);
    CHECK(error.message ==
          "there is no room on the device for what NCCL moves: " + words_of(std::bad_alloc()));
    CHECK(error.fix.empty());  // Whoever knows the plan says what helps.
  };
  const auto memory = stream->allocate(sizeof(float) * kTooMany);
  REQUIRE_FALSE(memory.ok());
  check(memory.error());
  const auto shared = stream->allocate_shared(sizeof(float) * kTooMany);
  REQUIRE_FALSE(shared.ok());
  check(shared.error());
  // It takes as much beside its inputs.
  const Status summed =
      stream->launch_sum({few.value().get()}, kTooMany, transport::Scalar::fp32, few.value().get());
  REQUIRE_FALSE(summed.ok());
  check(summed.error());
}

TEST_CASE("a device without streams of its own says so", "[engine][errors]") {
  const auto made = DeviceStream::create(c10::kCPU);
  REQUIRE_FALSE(made.ok());
  CHECK(made.error().code == Errc::unavailable);
  CHECK(made.error().message.starts_with("a stream for sums by NCCL cannot be made"));
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
    const auto warm = seat.value().group->begin_warm_up({1, 100000}, transport::within(kEnough));
    CHECK(warm.wait(transport::within(kEnough)).ok());
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
