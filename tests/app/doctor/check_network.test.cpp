#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "app/doctor/checks.hpp"

using namespace troupe;
using namespace troupe::app;
using Catch::Matchers::ContainsSubstring;

namespace {

UcxFacts usual_ucx() {
  UcxFacts facts;
  facts.version = "1.13.1";
  facts.built_version = "1.13.0";
  facts.ways = {{"self", "memory", false}, {"tcp", "lo", true},        {"tcp", "eth0", true},
                {"tcp", "eth1", true},     {"posix", "memory", false}, {"cma", "memory", false}};
  return facts;
}

NetworkFacts usual_network() {
  NetworkFacts facts;
  facts.ways = usual_ucx().ways;
  facts.interfaces = {{"lo", true, true, {"127.0.0.1"}, 0},
                      {"eth0", true, false, {"10.0.0.4"}, 1000},
                      {"eth1", true, false, {"10.1.0.4"}, 25000}};
  return facts;
}

}  // namespace

TEST_CASE("UCX needs a network transport, and misses shared memory", "[app]") {
  UcxFacts facts = usual_ucx();
  CHECK(check_ucx(facts) ==
        fine("ucx",
             "1.13.1: tcp; on this machine posix (cma is there, and not used); rows leave GPUs by "
             "way of host memory"));
  facts.ways.push_back({"cuda_copy", "cuda", false});
  CHECK_THAT(check_ucx(facts).found, ContainsSubstring("; rows leave GPUs from their own memory"));
  std::erase_if(facts.ways, [](const UcxWay& way) { return way.transport == "cma"; });
  CHECK_THAT(check_ucx(facts).found, ContainsSubstring("no cma"));
  std::erase_if(facts.ways, [](const UcxWay& way) { return way.transport == "posix"; });
  CHECK(check_ucx(facts).level == Level::warning);
  CHECK_THAT(check_ucx(facts).found, ContainsSubstring("no shared memory"));
  std::erase_if(facts.ways, [](const UcxWay& way) { return way.is_network; });
  CHECK(check_ucx(facts).level == Level::problem);
  CHECK_THAT(check_ucx(facts).found, ContainsSubstring("not even tcp"));
  facts.failed = Error{Errc::transport_failed, "it does not start", "", "mend it"};
  CHECK(check_ucx(facts) == problem("ucx", "it does not start", "mend it"));
}

TEST_CASE("UCX of another release than the build's is warned of", "[app]") {
  UcxFacts facts = usual_ucx();
  facts.version = "1.22.0";
  CHECK(check_ucx(facts).level == Level::warning);
  CHECK_THAT(check_ucx(facts).found, ContainsSubstring("the build was made with 1.13.0"));
}

TEST_CASE("UCX_TLS is judged by the rules of the transport", "[app]") {
  UcxFacts facts = usual_ucx();
  facts.tls = "posix";
  CHECK(check_ucx(facts).level == Level::problem);
  CHECK_THAT(check_ucx(facts).found, ContainsSubstring("UCX_TLS: "));
  facts.tls = "self,tcp";
  CHECK(check_ucx(facts).level == Level::ok);
  CHECK_THAT(check_ucx(facts).found, ContainsSubstring("which UCX_TLS excludes"));
}

TEST_CASE("GPUs' memory is read where UCX_TLS takes that for it", "[app]") {
  UcxFacts facts = usual_ucx();
  facts.ways.push_back({"cuda_copy", "cuda", false});
  for (const char* const taking : {"all", "tcp,posix,cuda_copy", "tcp,posix,cuda", "^rc"}) {
    facts.tls = taking;
    CHECK_THAT(check_ucx(facts).found, ContainsSubstring("from their own memory"));
  }
  for (const char* const leaving : {"tcp,posix", "^cuda_copy", "^rc,cuda"}) {
    facts.tls = leaving;
    CHECK_THAT(check_ucx(facts).found, ContainsSubstring("by way of host memory"));
  }
}

TEST_CASE("a door that nobody gets through is a problem", "[app]") {
  DoorFacts facts{"OpenSSL 3.0.15", std::chrono::microseconds(1500)};
  CHECK(check_door(facts) ==
        fine("door", "OpenSSL 3.0.15, a handshake over the loopback takes 1.5 ms"));
  facts.handshake = Error{Errc::transport_failed, "cannot listen", "", ""};
  CHECK(check_door(facts).level == Level::problem);
  CHECK_THAT(check_door(facts).found,
             ContainsSubstring("nodes could not join a job: cannot listen"));
  CHECK_FALSE(check_door(facts).fix.empty());
}

TEST_CASE("a host name must mean something to other machines", "[app]") {
  CHECK(check_host_name({"a7", {"10.0.0.4"}}) == fine("host name", "a7 is 10.0.0.4"));
  CHECK(check_host_name({"a7", {}}).level == Level::warning);
  CHECK_THAT(check_host_name({"a7", {}}).found, ContainsSubstring("a7 has no address"));
  CHECK(check_host_name({"localhost", {"127.0.0.1"}}).level == Level::warning);
  CHECK_THAT(check_host_name({"", {}}).fix, ContainsSubstring("cluster.listen"));
}

TEST_CASE("tensors go over an interface that is up and that UCX can take", "[app]") {
  NetworkFacts facts = usual_network();
  CHECK_THAT(check_network(facts).found,
             ContainsSubstring("eth1 (10.1.0.4, 25 Gbit/s) reaches other machines; also eth0"));
  CHECK(check_network(facts).level == Level::ok);
  facts.is_one_machine = false;  // By hand: the faster of both.
  CHECK(check_network(facts).level == Level::warning);
  CHECK_THAT(check_network(facts).fix, ContainsSubstring("cluster.data_interface = \"eth1\""));
  facts.interfaces[2].is_up = false;
  CHECK(check_network(facts).level == Level::ok);
  facts.interfaces[1].addresses.clear();
  CHECK(check_network(facts).level == Level::problem);
  facts.is_one_machine = true;
  CHECK(check_network(facts) == fine("network", "the loopback alone: jobs of one machine"));
}

TEST_CASE("an interface that is asked for must be there", "[app][errors]") {
  NetworkFacts facts = usual_network();
  facts.wanted_by = "cluster.data_interface";
  facts.wanted = "eth0,eth1";
  CHECK(check_network(facts) ==
        fine("network", "tensors go over eth0,eth1 (cluster.data_interface)"));
  facts.wanted = "eth0,eth7";
  CHECK(check_network(facts) == problem("network",
                                        "cluster.data_interface = eth7 is no device of UCX here",
                                        "use one of eth0, eth1, lo"));
  facts.ways.push_back({"rc_verbs", "mlx5_0:1", true});
  for (const char* good : {"mlx5_0:1", "mlx5_0", "all"}) {
    facts.wanted = good;
    CHECK(check_network(facts).level == Level::ok);
  }
}

TEST_CASE("a clock behind the build is warned of", "[app]") {
  ClockFacts facts;
  facts.built = std::chrono::system_clock::now();
  facts.now = facts.built - std::chrono::hours(23);  // Another time zone's file.
  CHECK(check_clock(facts).level == Level::ok);
  CHECK_THAT(check_clock(facts).found, ContainsSubstring("not synchronised"));
  facts.is_synchronised = true;
  CHECK(check_clock(facts) == fine("clock", "synchronised"));
  facts.now = facts.built - std::chrono::hours(25);
  CHECK(check_clock(facts).level == Level::warning);
}
