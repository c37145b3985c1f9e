// A node opens its data on a thread of its own, so these cases run on a real scheduler and wait.

#include "tests/torch_catch.hpp"

#include "actors/node/node_actor.hpp"

#include <csignal>
#include <exception>
#include <future>
#include <new>

#include "runtime/vocabulary/user_code.hpp"
#include "tests/actors/fake_actors.hpp"

namespace troupe::actors {
namespace {

/// Long enough for a busy machine; reached only when a test fails.
constexpr auto kPatience = std::chrono::seconds(60);

/// A node that joins a fake supervisor and opens what it works with until `finish_opening`.
class Fixture {
 public:
  explicit Fixture(std::optional<Error> refusal = {}, double stall_timeout_s = 60) {
    seen_.welcome = {NodeId{2}, "the job", 0.05, 60, 60, stall_timeout_s};
    seen_.refusal = std::move(refusal);
    // What a supervisor says to a node that cannot go on, it says to all.
    seen_.on_fault = [this](const Error& fault) { stop("node 2: " + fault.message); };
    supervisor_ = system_.spawn(fake_supervisor, &seen_);
  }

  ~Fixture() {
    if (is_opening_) finish_opening(Error{Errc::cancelled, "the test is over", {}, {}});
    caf::anon_send_exit(node_, caf::exit_reason::kill);
    caf::anon_send_exit(supervisor_, caf::exit_reason::kill);
  }

  void start() {
    NodeStart start{{"host", 7, -1, "1.0"}, "head:7000", {}, {}};
    start.open = [this](const NodeWelcome& welcome) {
      begun_.set_value(welcome);
      return opened_.get_future().get();
    };
    start.on_end = [this](JobEnd how) { ended_.set_value(std::move(how)); };
    node_ = system_.spawn(node, &resources_, supervisor_, std::move(start));
  }

  /// Waits until the node has a place and opens its data.
  NodeWelcome wait_until_it_opens() {
    auto begun = begun_.get_future();
    REQUIRE(begun.wait_for(kPatience) == std::future_status::ready);
    is_opening_ = true;
    return begun.get();
  }

  void finish_opening(Result<NodeReady> with) {
    is_opening_ = false;
    opened_.set_value(std::move(with));
  }

  void throw_in_opening(const std::exception_ptr& what) {
    is_opening_ = false;
    opened_.set_exception(what);
  }

  void stop(const std::string& why) {
    caf::anon_send(node_, stop_atom::value, why, why.empty() ? 0 : 1);
  }
  void refuse(const Error& why) { caf::anon_send(node_, stop_atom::value, why); }
  void stop(std::int32_t signal) { caf::anon_send(node_, stop_atom::value, signal); }
  void lose_supervisor() { caf::anon_send_exit(supervisor_, caf::exit_reason::kill); }

  JobEnd how_it_ended() {
    auto ended = ended_.get_future();
    REQUIRE(ended.wait_for(kPatience) == std::future_status::ready);
    return ended.get();
  }

 private:
  struct Config : caf::actor_system_config {
    Config() { add_messages(*this); }
  };

  SupervisorSeen seen_;
  NodeResources resources_;
  std::promise<NodeWelcome> begun_;
  std::promise<Result<NodeReady>> opened_;
  std::promise<JobEnd> ended_;
  bool is_opening_ = false;
  Config config_;
  caf::actor_system system_{config_};
  // After the system, which waits in its end until nobody refers to its actors any more.
  SupervisorActor supervisor_;
  NodeActor node_;
};

TEST_CASE("a node that opens its data hears why the job ends", "[actors][errors]") {
  Fixture fixture;
  fixture.start();
  CHECK(fixture.wait_until_it_opens().node == NodeId{2});
  fixture.stop("node 1 (host, pid 8) was lost: was killed by signal 9");
  const JobEnd how = fixture.how_it_ended();  // Not after its data are open: they may never be.
  CHECK(how.exit_code == 1);
  CHECK(how.message == "node 1 (host, pid 8) was lost: was killed by signal 9");
  CHECK(how.was_told);
}

TEST_CASE("a node that opens its data notices a lost supervisor", "[actors][errors]") {
  Fixture fixture;
  fixture.start();
  fixture.wait_until_it_opens();
  fixture.lose_supervisor();
  const JobEnd how = fixture.how_it_ended();
  CHECK(how.exit_code == 1);
  CHECK(how.message == "node 2 ends: the connection to the supervisor was lost");
  CHECK_FALSE(how.was_told);
}

TEST_CASE("a node that cannot open its data tells the supervisor and ends with its own reason",
          "[actors][errors]") {
  Fixture fixture;
  fixture.start();
  fixture.wait_until_it_opens();
  fixture.finish_opening(Error{Errc::bad_data, "no samples", "x.json:1", "write some"});
  const JobEnd how = fixture.how_it_ended();  // By the supervisor's answer.
  CHECK(how.exit_code == 3);
  CHECK(how.message == "x.json:1: no samples\n  fix: write some");
}

TEST_CASE("what is thrown while a node opens its data is told as it is", "[actors][errors]") {
  const auto told_of = [](const std::exception_ptr& thrown) {
    Fixture fixture;
    fixture.start();
    fixture.wait_until_it_opens();
    fixture.throw_in_opening(thrown);
    return fixture.how_it_ended();
  };
  const JobEnd family =
      told_of(std::make_exception_ptr(UserFault("`sizes` of family 'mine'", "throws: no idea")));
  CHECK(family.exit_code == 2);
  CHECK(family.message == "`sizes` of family 'mine' throws: no idea\n  fix: correct the plug-in");
  const JobEnd number = told_of(std::make_exception_ptr(42));
  CHECK(number.exit_code == 1);
  CHECK(number.message.starts_with("opening the data stopped: an exception of unknown type\n"));
  const JobEnd memory = told_of(std::make_exception_ptr(std::bad_alloc()));
  CHECK(memory.message.starts_with("opening the data stopped: out of memory\n"));
}

TEST_CASE("a node whose format does not return while it opens its data says which one",
          "[actors][errors]") {
  Fixture fixture({}, 0.3);
  fixture.start();
  fixture.wait_until_it_opens();
  const plugins::CallingUser call("`read` of format 'mine' on list.txt");
  const JobEnd how = fixture.how_it_ended();  // By the supervisor's answer.
  CHECK(how.exit_code == 1);
  CHECK(
      how.message.starts_with("train.stall_timeout_s: `read` of format 'mine' on list.txt has "
                              "not returned for 0.3 s\n"));
}

TEST_CASE("a signal ends a node that opens its data by way of the supervisor", "[actors]") {
  Fixture fixture;
  fixture.start();
  fixture.wait_until_it_opens();
  fixture.stop(SIGTERM);
  CHECK(fixture.how_it_ended().message == "node 2: stopped by SIGTERM");
}

TEST_CASE("a node that is refused says why and what to do", "[actors][errors]") {
  Fixture fixture(Error{Errc::unavailable, "the job is full", "", "raise cluster.nodes"});
  fixture.start();
  const JobEnd how = fixture.how_it_ended();
  CHECK(how.exit_code == 2);
  CHECK(how.message ==
        "head:7000: the supervisor refused: the job is full\n  fix: raise cluster.nodes");
}

TEST_CASE("a node that is refused after its welcome says all of why, and ends with its exit code",
          "[actors][errors]") {
  Fixture fixture;
  fixture.start();
  fixture.wait_until_it_opens();
  fixture.refuse({Errc::bad_data, "node 2 has other data", "data.sources", "give it the same"});
  const JobEnd how = fixture.how_it_ended();
  CHECK(how.exit_code == 3);
  CHECK(how.message ==
        "head:7000, data.sources: the supervisor refused: node 2 has other data\n"
        "  fix: give it the same");
  CHECK_FALSE(how.was_told);  // Which would be printed in one line.
}

}  // namespace
}  // namespace troupe::actors
