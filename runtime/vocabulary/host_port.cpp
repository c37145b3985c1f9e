#include "runtime/vocabulary/host_port.hpp"

#include <charconv>

namespace troupe {

bool HostPort::is_loopback() const {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

Result<HostPort> parse_host_port(const std::string& text) {
  const auto colon = text.rfind(':');
  HostPort address;
  const char* begin = text.data() + (colon == std::string::npos ? text.size() : colon + 1);
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(begin, end, address.port);
  if (colon == std::string::npos || colon == 0 || parsed.ec != std::errc{} || parsed.ptr != end)
    return Error{
        Errc::invalid_argument, "'" + text + "' is not HOST:PORT", {}, "for example 10.0.0.1:7000"};
  address.host = text.substr(0, colon);
  return address;
}

}  // namespace troupe
