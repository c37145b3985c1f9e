#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "app/doctor/checks.hpp"
#include "runtime/vocabulary/joined.hpp"
#include "transport/ucx/resources.hpp"
#include "transport/ucx/transport_lists.hpp"

namespace troupe::app {

namespace {

std::vector<std::string> devices_of(const std::vector<UcxWay>& ways) {
  std::set<std::string> devices;
  for (const UcxWay& way : ways)
    if (way.is_network) devices.insert(way.device);
  return {devices.begin(), devices.end()};
}

/// Transports without their devices, each once.
std::vector<std::string> transports_of(const std::vector<UcxWay>& ways, bool network) {
  std::vector<std::string> names;
  for (const UcxWay& way : ways)
    if (way.is_network == network && std::ranges::find(names, way.transport) == names.end())
      names.push_back(way.transport);
  return names;
}

bool has(const std::vector<std::string>& words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

/// Whether a list of UCX's transports, or of exceptions (`^`), has that for memory of GPUs, by its
/// name or its group's.
bool takes_gpus(const std::string& list) {
  const bool is_of_exceptions = list.starts_with('^');
  std::istringstream names(list.substr(is_of_exceptions ? 1 : 0));
  for (std::string name; std::getline(names, name, ',');)
    if (name == transport::kCudaTransport || name == "cuda") return !is_of_exceptions;
  return is_of_exceptions;
}

/// `1.13` of `1.13.1`: what must agree within a job.
std::string release_of(const std::string& version) {
  return version.substr(0, version.find('.', version.find('.') + 1));
}

std::string speed_words(const NetworkInterface& one) {
  if (one.speed_mbit <= 0) return "";
  std::ostringstream text;
  text << ", " << static_cast<double>(one.speed_mbit) / 1000 << " Gbit/s";
  return text.str();
}

std::string words_of(const NetworkInterface& one) {
  const std::string where = one.addresses.empty() ? "no address" : one.addresses.front();
  return one.name + " (" + where + speed_words(one) + ")";
}

/// Interfaces that reach other machines and UCX can take, the fastest first.
std::vector<NetworkInterface> outward(const NetworkFacts& facts) {
  const auto devices = devices_of(facts.ways);
  std::vector<NetworkInterface> found;
  for (const NetworkInterface& one : facts.interfaces)
    if (one.is_up && !one.is_loopback && !one.addresses.empty() && has(devices, one.name))
      found.push_back(one);
  std::ranges::stable_sort(found, std::greater{}, &NetworkInterface::speed_mbit);
  return found;
}

Finding check_wanted(const NetworkFacts& facts) {
  const auto devices = devices_of(facts.ways);
  std::istringstream list(facts.wanted);
  for (std::string name; std::getline(list, name, ',');) {
    // UCX names ports of cards `mlx5_0:1`, takes the card's name alone too, and `all`.
    const bool is_known = name == "all" || std::ranges::any_of(devices, [&](const auto& device) {
                            return device == name || device.starts_with(name + ":");
                          });
    if (!is_known)
      return problem("network", facts.wanted_by + " = " + name + " is no device of UCX here",
                     "use one of " + joined(devices));
  }
  return fine("network", "tensors go over " + facts.wanted + " (" + facts.wanted_by + ")");
}

}  // namespace

Finding check_ucx(const UcxFacts& facts) {
  if (facts.failed) return problem("ucx", *facts.failed);
  const auto lists = transport::divide_transports(facts.tls);
  if (!lists.ok()) return problem("ucx", "UCX_TLS: " + lists.error().message, lists.error().fix);
  const auto networks = transports_of(facts.ways, true), local = transports_of(facts.ways, false);
  if (networks.empty())
    return problem("ucx", facts.version + ": no network transport, not even tcp",
                   "start the loopback (`ip link set lo up`)");
  std::string found = facts.version + ": " + joined(networks) + "; on this machine ";
  const bool has_queues = has(local, "posix") || has(local, "sysv");
  if (!has_queues)
    return warning("ucx", found + "no shared memory, so that local nodes use sockets",
                   "let this user create shared memory (/dev/shm, ipcs -l)");
  found += has(local, "posix") ? "posix" : "sysv";
  // Faster for one large copy, but a dead peer is not noticed: Troupe never takes it.
  found += has(local, "cma") ? " (cma is there, and not used)" : " (no cma, which is not used)";
  if (lists.value().shared.empty()) found += ", which UCX_TLS excludes";
  const bool reads_gpus =
      has(local, transport::kCudaTransport) && takes_gpus(lists.value().network);
  found += reads_gpus ? "; rows leave GPUs from their own memory"
                      : "; rows leave GPUs by way of host memory";
  if (release_of(facts.version) != release_of(facts.built_version))
    return warning("ucx", found + "; the build was made with " + facts.built_version,
                   "build again here: all nodes of a job need one version of UCX");
  return fine("ucx", found);
}

Finding check_door(const DoorFacts& facts) {
  if (!facts.handshake.ok())
    return problem(
        "door", facts.library + ": nodes could not join a job: " + facts.handshake.error().message,
        facts.handshake.error().fix.empty()
            ? "let this user listen on the loopback and connect to it"
            : facts.handshake.error().fix);
  std::ostringstream text;
  text.precision(2);
  text << facts.library << ", a handshake over the loopback takes "
       << static_cast<double>(facts.handshake.value().count()) / 1000 << " ms";
  return fine("door", text.str());
}

Finding check_host_name(const HostNameFacts& facts) {
  const std::string fix =
      "say the address in the job (cluster.listen = \"10.0.0.4:29500\"), or mend /etc/hosts";
  if (facts.name.empty() || facts.name == "localhost")
    return warning("host name",
                   "'" + facts.name +
                       "' tells other machines nothing: a job that listens on all "
                       "addresses names it to them",
                   fix);
  if (facts.addresses.empty()) return warning("host name", facts.name + " has no address", fix);
  return fine("host name", facts.name + " is " + joined(facts.addresses));
}

Finding check_network(const NetworkFacts& facts) {
  if (!facts.wanted.empty()) return check_wanted(facts);
  const auto found = outward(facts);
  std::vector<std::string> words;
  for (const NetworkInterface& one : found) words.push_back(words_of(one));
  if (found.empty() && !facts.is_one_machine)
    return problem("network",
                   "no interface that reaches other machines, and the job has nodes there",
                   "give one an address (`ip address`), then start again");
  if (found.empty()) return fine("network", "the loopback alone: jobs of one machine");
  if (found.size() == 1 || facts.is_one_machine)
    return fine("network", words.front() + " reaches other machines" +
                               (words.size() > 1 ? "; also " + joined(std::vector<std::string>{
                                                                   words.begin() + 1, words.end()})
                                                 : ""));
  return warning(
      "network", "UCX chooses among " + joined(words),
      "name the one between the nodes: cluster.data_interface = \"" + found.front().name + "\"");
}

Finding check_clock(const ClockFacts& facts) {
  if (facts.now + std::chrono::hours(24) < facts.built)
    return warning("clock", "it is behind the time when this build was made",
                   "set it (`timedatectl set-ntp true`): runs and checkpoints are sorted by it");
  return fine("clock", facts.is_synchronised
                           ? "synchronised"
                           : "not synchronised; logs of several machines may not agree");
}

}  // namespace troupe::app
