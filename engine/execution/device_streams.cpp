#include "engine/execution/device_streams.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::engine {

namespace {

/// Of one device.
struct Streams {
  std::mutex mutex;
  std::vector<c10::Stream> held;
  std::deque<c10::Stream> free;  ///< In the order in which they were given back.
};

Streams& streams_of(c10::Device place) {
  static std::mutex mutex;
  // Holders may outlive statics.
  static auto* all = new std::map<std::pair<c10::DeviceType, c10::DeviceIndex>, Streams>;
  const std::lock_guard lock(mutex);
  return (*all)[{place.type(), place.index()}];
}

bool has(const std::vector<c10::Stream>& streams, const c10::Stream& stream) {
  return std::ranges::find(streams, stream) != streams.end();
}

/// From LibTorch's pool one that is none of these; nothing: the pool came round.
std::optional<c10::Stream> another(c10::Device place, const std::vector<c10::Stream>& held) {
  const c10::impl::VirtualGuardImpl guard(place.type());
  std::vector<c10::Stream> seen;
  for (;;) {
    const c10::Stream next = guard.getNewStream(place);
    if (!has(held, next)) return next;
    if (has(seen, next)) return std::nullopt;
    seen.push_back(next);
  }
}

void give_back(Streams& streams, const c10::Stream& stream) {
  const std::lock_guard lock(streams.mutex);
  std::erase(streams.held, stream);
  streams.free.push_back(stream);
}

}  // namespace

Result<DeviceStreams::Own> DeviceStreams::take(c10::Device place) {
  Streams& streams = streams_of(place);
  const std::lock_guard lock(streams.mutex);
  std::optional<c10::Stream> taken;
  if (!streams.free.empty()) {
    taken = streams.free.front();
    streams.free.pop_front();
  } else {
    taken = another(place, streams.held);
  }
  if (!taken)
    return Error{Errc::unavailable,
                 "all " + std::to_string(streams.held.size()) + " streams of " + place.str() +
                     " are taken, and one more is needed",
                 {},
                 "set cluster.rows = \"messages\", as rows by NCCL take a stream for each device "
                 "that a device feeds or is fed by; or cluster.sums = \"messages\""};
  streams.held.push_back(*taken);
  return Own(new c10::Stream(*taken), [&streams](const c10::Stream* own) {
    give_back(streams, *own);
    delete own;
  });
}

}  // namespace troupe::engine
