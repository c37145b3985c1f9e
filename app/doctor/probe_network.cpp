#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/timex.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <string>

#include "app/doctor/probes.hpp"
#include "app/doctor/system_files.hpp"
#include "runtime/door/loopback_check.hpp"
#include "transport/ucx/resources.hpp"

namespace troupe::app {

namespace fs = std::filesystem;

namespace {

std::string address_text(const sockaddr* address) {
  std::array<char, NI_MAXHOST> text{};
  const socklen_t size =
      address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  return getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0
             ? text.data()
             : "";
}

NetworkInterface& named(std::vector<NetworkInterface>& all, const std::string& name) {
  const auto found = std::ranges::find(all, name, &NetworkInterface::name);
  if (found != all.end()) return *found;
  all.emplace_back().name = name;
  return all.back();
}

}  // namespace

UcxFacts probe_ucx(const std::string& built_version) {
  UcxFacts facts;
  facts.version = transport::ucx_version();
  facts.built_version = built_version;
  if (const char* tls = std::getenv("UCX_TLS")) facts.tls = tls;
  auto found = transport::ucx_resources();
  if (!found.ok())
    facts.failed = std::move(found).error();
  else
    for (auto& way : found.value())
      facts.ways.push_back({way.transport, way.device, way.is_network});
  return facts;
}

DoorFacts probe_door(std::chrono::steady_clock::time_point deadline) {
  return {door::tls_library(), door::check_loopback(deadline)};
}

HostNameFacts probe_host_name() {
  HostNameFacts facts;
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) == 0) facts.name = name.data();
  addrinfo wanted{}, *raw = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(facts.name.c_str(), nullptr, &wanted, &raw) != 0) return facts;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(raw, &freeaddrinfo);
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next)
    facts.addresses.push_back(address_text(one->ai_addr));
  return facts;
}

NetworkFacts probe_interfaces(const fs::path& root) {
  NetworkFacts facts;
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) return facts;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(raw, &freeifaddrs);
  for (const ifaddrs* one = list.get(); one != nullptr; one = one->ifa_next) {
    NetworkInterface& found = named(facts.interfaces, one->ifa_name);
    found.is_up = (one->ifa_flags & IFF_UP) != 0;
    found.is_loopback = (one->ifa_flags & IFF_LOOPBACK) != 0;
    const auto speed = number_in(root / "sys/class/net" / found.name / "speed");
    found.speed_mbit = std::max<std::int64_t>(0, speed.value_or(0));
    const bool has_address = one->ifa_addr != nullptr && (one->ifa_addr->sa_family == AF_INET ||
                                                          one->ifa_addr->sa_family == AF_INET6);
    if (has_address) found.addresses.push_back(address_text(one->ifa_addr));
  }
  return facts;
}

ClockFacts probe_clock() {
  ClockFacts facts;
  facts.now = std::chrono::system_clock::now();
  facts.built = facts.now;
  std::error_code code;
  const auto written = fs::last_write_time("/proc/self/exe", code);
  if (!code)
    facts.built = std::chrono::time_point_cast<std::chrono::system_clock::duration>(
        std::chrono::file_clock::to_sys(written));
  timex state{};
  const int clock = adjtimex(&state);
  facts.is_synchronised = clock >= 0 && clock != TIME_ERROR;
  return facts;
}

}  // namespace troupe::app
