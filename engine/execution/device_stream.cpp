#include "engine/execution/device_stream.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <unistd.h>

#include <array>
#include <exception>
#include <utility>

#include "engine/execution/device_errors.hpp"
#include "kernels/gpu_query.hpp"

namespace troupe::engine {

namespace {

using transport::Scalar;

at::ScalarType type_of(Scalar scalar) {
  switch (scalar) {
    case Scalar::fp32: return at::kFloat;
    case Scalar::fp64: return at::kDouble;
    case Scalar::bf16: return at::kBFloat16;
    case Scalar::int64: return at::kLong;
  }
  return at::kByte;
}

/// Of a lost device as of a call in which NCCL fails: it is done without, while any other trouble
/// of a stream, as too little memory, ends the job. What helps there depends on its plan
/// (`with_promise`).
Error failure(Errc code, const std::string& what, const std::exception& thrown) {
  if (is_device_lost(thrown))
    return {Errc::transport_failed, "the device failed: " + words_of(thrown), {}, kDeviceFix};
  if (is_out_of_memory(thrown))
    return {Errc::infeasible,
            "there is no room on the device for what NCCL moves: " + words_of(thrown),
            {},
            {}};
  return {code, what + ": " + words_of(thrown), {}, {}};
}

/// Runs `call`; what it throws as an error.
template <class Call>
auto guarded(Errc code, const std::string& what, Call call) -> Result<decltype(call())> {
  try {
    return call();
  } catch (const std::exception& thrown) {
    return failure(code, what, thrown);
  }
}

/// As a tensor of the device; nobody frees it.
at::Tensor view_of(const void* data, std::size_t count, Scalar scalar, c10::Device place) {
  const std::array<std::int64_t, 1> shape{static_cast<std::int64_t>(count)};
  return at::for_blob(const_cast<void*>(data), shape)
      .options(at::TensorOptions().dtype(type_of(scalar)).device(place))
      .target_device(place)
      .make_tensor();
}

/// Keeps the tensor.
std::shared_ptr<std::byte> bytes_of(std::shared_ptr<at::Tensor> tensor) {
  auto* data = static_cast<std::byte*>(tensor->mutable_data_ptr());
  return std::shared_ptr<std::byte>(std::move(tensor), data);
}

}  // namespace

Result<std::shared_ptr<transport::NcclStream>> DeviceStream::create(c10::Device place) {
  try {
    auto taken = DeviceStreams::take(place);
    if (!taken.ok()) return std::move(taken).error();
    const c10::impl::VirtualGuardImpl guard(place.type());
    void* const handle = guard.getStreamNativeHandle(*taken.value());
    return std::shared_ptr<transport::NcclStream>(
        new DeviceStream(place, std::move(taken).value(), handle));
  } catch (const std::exception& thrown) {
    return failure(Errc::unavailable, "a stream for sums by NCCL cannot be made", thrown);
  }
}

std::string DeviceStream::device() const {
  const auto index = static_cast<std::size_t>(place_.index());
  if (place_.is_cuda()) {
    const auto gpus = kernels::query_gpus();
    if (gpus.ok() && index < gpus.value().size()) return gpus.value()[index].uuid;
  }
  std::array<char, 64> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  // Of a longer text NCCL's meeting sees the beginning alone: what tells devices apart comes first.
  return std::to_string(index) + "@" + std::string(host.data());
}

Status DeviceStream::make_current() {
  const auto done = guarded(Errc::internal, "the device failed", [&] {
    c10::impl::VirtualGuardImpl(place_.type()).setDevice(place_);
    return true;
  });
  return done.ok() ? Status(Done{}) : Status(done.error());
}

Result<std::uint64_t> DeviceStream::mark() {
  return guarded(Errc::internal, "the device failed", [&] {
    const std::lock_guard lock(mutex_);
    c10::Event event(place_.type());
    event.record(*stream_);
    marks_.emplace(++next_, std::move(event));
    return next_;
  });
}

Result<bool> DeviceStream::reached(std::uint64_t mark) {
  return guarded(Errc::internal, "the device failed", [&] {
    const std::lock_guard lock(mutex_);
    const auto found = marks_.find(mark);
    if (found == marks_.end()) return true;  // Of one behind it that was come to.
    if (!found->second.query()) return false;
    marks_.erase(marks_.begin(), std::next(found));
    return true;
  });
}

/// In this stream's own memory: in the default one's, all that was launched there would have to end
/// first, which may still read what was in this place before.
std::shared_ptr<at::Tensor> DeviceStream::own_memory(std::size_t bytes) const {
  const c10::StreamGuard inside(*stream_);
  const std::array<std::int64_t, 1> shape{static_cast<std::int64_t>(bytes)};
  return std::make_shared<at::Tensor>(
      at::empty(shape, at::TensorOptions().dtype(at::kByte).device(place_)));
}

Result<std::shared_ptr<std::byte>> DeviceStream::allocate(std::size_t bytes) {
  return guarded(Errc::internal, "the device failed", [&] { return bytes_of(own_memory(bytes)); });
}

Result<std::shared_ptr<std::byte>> DeviceStream::allocate_shared(std::size_t bytes) {
  return guarded(Errc::internal, "the device failed", [&] {
    auto tensor = own_memory(bytes);
    const c10::impl::VirtualGuardImpl guard(place_.type());
    // Who lets go of it has no more than launched what reads it.
    guard.recordDataPtrOnStream(tensor->storage().data_ptr(), guard.getDefaultStream(place_));
    return bytes_of(std::move(tensor));
  });
}

Status DeviceStream::launch_sum(std::vector<const void*> inputs, std::size_t count, Scalar scalar,
                                void* output) {
  const auto done = guarded(Errc::internal, "the device failed", [&] {
    const c10::StreamGuard guard(*stream_);
    const auto wide = scalar == Scalar::bf16 ? at::kFloat : type_of(scalar);
    // A tensor of its own, because the output is one of the inputs.
    at::Tensor sum = view_of(inputs.front(), count, scalar, place_).to(wide, false, /*copy=*/true);
    for (std::size_t i = 1; i < inputs.size(); ++i)
      sum.add_(view_of(inputs[i], count, scalar, place_).to(wide));
    view_of(output, count, scalar, place_).copy_(sum, true);
    return true;
  });
  return done.ok() ? Status(Done{}) : Status(done.error());
}

}  // namespace troupe::engine
