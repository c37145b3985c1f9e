#include "engine/execution/failed_device.hpp"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "engine/execution/device_errors.hpp"

namespace troupe::engine {

namespace {

FailedWork failed_by(Error error, EpochNumber generation) {
  FailedWork failed{0, generation};
  failed.thrown = error.message;
  failed.error = std::move(error);
  failed.by_device = true;
  return failed;
}

/// What a device throws that is asked for nothing: an error that stays with it comes again.
std::exception_ptr trouble_of(c10::Device place) {
  try {
    c10::Event event(place.type());
    event.record(c10::impl::VirtualGuardImpl(place.type()).getStream(place));
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace

std::optional<FailedWork> failed_device(const std::exception_ptr& thrown, EpochNumber generation) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    if (!is_device_lost(error)) return std::nullopt;
    Error lost = device_failure(error);
    lost.fix = kDeviceFix;
    return failed_by(std::move(lost), generation);
  } catch (...) {
  }
  return std::nullopt;
}

std::optional<FailedWork> failed_opening(const Error& error, c10::Device place,
                                         EpochNumber generation) {
  if (!place.is_cpu())
    if (auto lost = failed_device(trouble_of(place), generation)) return lost;
  if (error.code != Errc::timed_out) return std::nullopt;
  return failed_by(error, generation);
}

}  // namespace troupe::engine
