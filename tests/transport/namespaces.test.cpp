// Nodes on "several hosts": processes in network namespaces joined by a virtual cable. Needs root.

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <cstdlib>
#include <string>

#include "tests/transport/backends.hpp"

namespace troupe::transport::testing {
namespace {

Tag tag(std::uint64_t index) { return make_tag(1, TagKind::user, 0, index); }

bool run(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

/// Two namespaces with one address each, and the cable between them.
class Hosts {
 public:
  Hosts() {
    ok_ = geteuid() == 0 && run("ip netns add " + name(0)) && run("ip netns add " + name(1)) &&
          run("ip link add " + name(0) + " type veth peer name " + name(1));
    for (int host = 0; ok_ && host < 2; ++host) {
      const auto inside = "ip -n " + name(host) + " ";
      ok_ =
          run("ip link set " + name(host) + " netns " + name(host)) &&
          run(inside + "addr add 10.77.0." + std::to_string(host + 1) + "/24 dev " + name(host)) &&
          run(inside + "link set lo up") && run(inside + "link set " + name(host) + " up");
    }
  }
  ~Hosts() {
    for (int host = 0; host < 2; ++host) run("ip netns del " + name(host));
  }
  bool ok() const { return ok_; }
  std::string name(int host) const {
    return "tr" + std::to_string(getpid() % 100000) + (host == 0 ? "a" : "b");
  }
  void cut() { unplug(0); }
  /// At this host's end of the cable; the other one sees that nothing is there any more.
  void unplug(int host) { run("ip -n " + name(host) + " link set " + name(host) + " down"); }

  /// What this host sends to the other one goes nowhere, and nobody is told.
  void lose_all(int host) {
    const auto other = "10.77.0." + std::to_string(2 - host);
    run("ip -n " + name(host) + " neigh replace " + other + " lladdr 02:00:00:00:00:99 dev " +
        name(host) + " nud permanent");
  }
  void lose_nothing(int host) {
    run("ip -n " + name(host) + " neigh del 10.77.0." + std::to_string(2 - host) + " dev " +
        name(host));
  }

 private:
  bool ok_ = false;
};

std::unique_ptr<TestNode> node_on(
    const Hosts& hosts, int host,
    std::chrono::milliseconds connect_timeout = std::chrono::seconds(6)) {
  auto options = options_of({"ucx", "self,tcp", true}, host, nullptr);
  options.ucx.connect_timeout = connect_timeout;
  options.ucx.net_devices = hosts.name(host);
  return make_process_node("ucx", options, hosts.name(host));
}

void connect(TestNode& a, TestNode& b) {
  REQUIRE(a.connect(1, b.address()).ok);
  REQUIRE(b.connect(0, a.address()).ok);
}

void check_works(TestNode& from, TestNode& to) {
  for (const std::size_t bytes : {8u, 3u << 20}) {
    const int receive = to.receive(0, tag(1), bytes);
    from.send(1, tag(1), bytes, 5);
    const auto outcome = to.wait(receive, 10000);
    INFO(outcome.message);
    REQUIRE(outcome.ok);
    CHECK(outcome.digest == digest_of_pattern(5, bytes));
  }
}

TEST_CASE("nodes on two hosts exchange messages; a killed one is noticed and comes back",
          "[transport]") {
  Hosts hosts;
  if (!hosts.ok()) SKIP("network namespaces need root and the programs of iproute2");
  auto first = node_on(hosts, 0), second = node_on(hosts, 1);
  connect(*first, *second);
  check_works(*first, *second);
  const int receive = first->receive(1, tag(2), 1 << 20);
  second->vanish();
  CHECK(first->wait(receive, 2000).code == Errc::transport_failed);
  second = node_on(hosts, 1);
  connect(*first, *second);
  check_works(*first, *second);
}

TEST_CASE("a cut cable is left behind by disconnecting", "[transport][errors]") {
  Hosts hosts;
  if (!hosts.ok()) SKIP("network namespaces need root and the programs of iproute2");
  const auto first = node_on(hosts, 0), second = node_on(hosts, 1);
  connect(*first, *second);
  check_works(*first, *second);
  hosts.cut();
  const int receive = first->receive(1, tag(2), 1 << 20);
  const int send = first->send(1, tag(3), 8 << 20, 1);
  // UCX alone may not notice for minutes; the heartbeat of the control messages does.
  first->disconnect(1);
  CHECK(first->wait(receive, 2000).code != Errc::timed_out);
  CHECK(first->wait(send, 2000).code != Errc::timed_out);
}

TEST_CASE("a host that does not answer holds up nobody who connects to it", "[transport][errors]") {
  Hosts hosts;
  if (!hosts.ok()) SKIP("network namespaces need root and the programs of iproute2");
  const auto first = node_on(hosts, 0), second = node_on(hosts, 1);
  const auto address = second->address();
  hosts.unplug(1);
  const auto begun = std::chrono::steady_clock::now();
  const auto connected = first->connect(1, address);
  INFO(connected.message);
  CHECK(connected.ok);
  const int send = first->send(1, tag(1), 8, 1);
  CHECK(first->wait(send, 100).code == Errc::timed_out);
  // The system asks for three seconds where the host is, and a call that waits does so, too.
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(2));
  CHECK(first->wait(send, 10000).code == Errc::transport_failed);
}

TEST_CASE("a way that drops everything in silence is given up by both ends",
          "[transport][errors]") {
  Hosts hosts;
  if (!hosts.ok()) SKIP("network namespaces need root and the programs of iproute2");
  const auto first = node_on(hosts, 0, std::chrono::seconds(1));
  const auto second = node_on(hosts, 1, std::chrono::seconds(1));
  hosts.lose_all(0);  // Nor does the second one hear that what it sends has come.
  connect(*first, *second);
  const int receive = first->receive(1, tag(1), 8), other = second->receive(0, tag(1), 8);
  // The system would try for two minutes.
  for (const auto& outcome : {first->wait(receive, 10000), second->wait(other, 10000)}) {
    CHECK(outcome.code == Errc::transport_failed);
    CHECK_THAT(outcome.message, Catch::Matchers::ContainsSubstring(
                                    "the connection to it did not come up within 1 s"));
  }
  hosts.lose_nothing(0);
  connect(*first, *second);
  check_works(*first, *second);
}

}  // namespace
}  // namespace troupe::transport::testing
