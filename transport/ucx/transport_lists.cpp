#include "transport/ucx/transport_lists.hpp"

#include <algorithm>
#include <sstream>
#include <vector>

namespace troupe::transport {
namespace {

/// UCX's names, and names of groups, for queues in shared memory.
constexpr std::string_view kQueues[] = {"posix", "sysv", "sm", "shm", "mm"};
/// Copies straight from process to process: cannot report a dead peer, so UCX never takes them
/// here.
constexpr std::string_view kCopies[] = {"cma", "knem", "xpmem"};

bool is_queue(std::string_view name) { return std::ranges::find(kQueues, name) != end(kQueues); }
bool is_copy(std::string_view name) { return std::ranges::find(kCopies, name) != end(kCopies); }

std::vector<std::string> split(std::string_view list) {
  std::vector<std::string> names;
  std::istringstream text{std::string(list)};
  for (std::string name; std::getline(text, name, ',');) names.push_back(name);
  return names;
}

TransportLists divide_exceptions(std::string_view tls) {
  const auto names = split(tls.substr(1));
  const auto excepts = [&](std::string_view name) {
    return std::ranges::find(names, name) != names.end();
  };
  TransportLists lists{std::string(tls) + ",sm", ""};
  if (excepts("sm") || excepts("shm") || excepts("mm")) return lists;
  if (!excepts("posix")) {
    lists.shared = "posix";
  } else if (!excepts("sysv")) {
    lists.shared = "sysv";
  }
  return lists;
}

}  // namespace

Result<TransportLists> divide_transports(std::string_view tls) {
  if (tls.starts_with('^')) return divide_exceptions(tls);
  TransportLists lists;
  bool has_network = false;
  for (const auto& name : split(tls)) {
    if (name == "all") return TransportLists{"^sm", "posix"};
    if (is_copy(name)) continue;
    if (is_queue(name)) {
      if (lists.shared.empty()) lists.shared = name == "sysv" ? "sysv" : "posix";
      continue;
    }
    if (name != "self") has_network = true;
    lists.network += (lists.network.empty() ? "" : ",") + name;
  }
  if (!lists.shared.empty() && !has_network) {
    return Error{Errc::invalid_argument,
                 "the UCX transports '" + std::string(tls) +
                     "' name shared memory alone; nodes introduce themselves over a network",
                 "", "add 'tcp'; with the device 'lo' it stays on this machine"};
  }
  return lists;
}

}  // namespace troupe::transport
