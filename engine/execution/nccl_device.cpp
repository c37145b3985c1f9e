#include "engine/execution/nccl_device.hpp"

#include <utility>

#include "engine/execution/device_stream.hpp"
#include "transport/nccl/nccl_streams.hpp"

namespace troupe::engine {

using transport::NcclGroup;

transport::Deadline compare_end(transport::Deadline deadline, const NcclDeviceOptions& options) {
  return deadline + 2 * transport::kNcclGrace + options.limits.release;
}

NcclDevice::NcclDevice(transport::Transport& transport, NcclDeviceOptions options)
    : transport_(transport), options_(options) {}

Status NcclDevice::start(const std::string& key) {
  if (context_) return Done{};
  auto library = transport::NcclLibrary::load();
  if (!library.ok()) {
    Error error = library.error();
    error.where = key;
    return error;
  }
  context_ = std::make_shared<transport::NcclContext>(library.value(), options_.limits);
  return Done{};
}

Result<std::shared_ptr<transport::NcclStream>> NcclDevice::make_stream(
    const std::string& key) const {
  const std::string kind = c10::DeviceTypeName(options_.place.type(), /*lower_case=*/true);
  if (const auto make = transport::find_nccl_streams(kind))
    return make(options_.slot.node.value, options_.slot.local_index);
  if (options_.place.is_cuda()) return DeviceStream::create(options_.place);
  return Error{Errc::unavailable,
               "NCCL works in the memory of GPUs, and the devices of this job are " + kind, key,
               "set cluster.device = \"cuda\", or " + key + " = \"messages\""};
}

Result<NcclSeat> NcclDevice::open(NcclSeat before, transport::NcclGroupOptions options,
                                  const std::string& key) {
  if (auto started = start(key); !started.ok()) return std::move(started).error();
  options.attempt = options_.opening / 3;
  options.attempts_max = 2;
  const transport::Deadline deadline = transport::within(options_.opening);
  if (before.group != nullptr) {
    auto next = NcclGroup::succeed(std::move(before.group), std::move(options), deadline);
    if (!next.ok()) return std::move(next).error();
    return NcclSeat{std::move(before.stream), std::move(next).value()};
  }
  auto stream = make_stream(key);
  if (!stream.ok()) return std::move(stream).error();
  auto made = NcclGroup::create(transport_, context_, stream.value(), std::move(options), deadline);
  if (!made.ok()) return std::move(made).error();
  return NcclSeat{std::move(stream).value(), std::move(made).value()};
}

}  // namespace troupe::engine
