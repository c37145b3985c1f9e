#include "transport/ucx/inbound.hpp"

namespace troupe::transport {

const void* Incoming::data() const {
  if (const auto* seen = std::get_if<Seen>(&form)) return seen->data;
  if (const auto* copied = std::get_if<Copied>(&form)) return copied->data.data();
  if (const auto* local = std::get_if<Local>(&form)) return local->data.data;
  return nullptr;
}

std::int64_t Incoming::copied_bytes() const {
  constexpr std::int64_t kEntry = 256;
  const auto* copied = std::get_if<Copied>(&form);
  return kEntry + (copied ? static_cast<std::int64_t>(copied->data.size()) : 0);
}

void Incoming::keep_bytes() {
  const auto* seen = std::get_if<Seen>(&form);
  if (!seen) return;
  const auto* begin = static_cast<const std::byte*>(seen->data);
  std::vector<std::byte> data;
  if (bytes > 0) data.assign(begin, begin + bytes);
  form = Copied{std::move(data)};
}

}  // namespace troupe::transport
