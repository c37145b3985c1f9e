// A node that loses its head. It opens its data and looks for a head on threads of their own, so
// these cases run on a real scheduler and wait.

#include "tests/torch_catch.hpp"

#include "actors/node/node_head.hpp"

#include <atomic>
#include <catch2/generators/catch_generators.hpp>
#include <csignal>
#include <fstream>
#include <future>
#include <mutex>
#include <thread>

#include "tests/actors/fake_actors.hpp"
#include "tests/engine/tiny_job.hpp"
#include "tests/support/scratch_folder.hpp"
#include "transport/inproc/hub.hpp"
#include "transport/registry.hpp"

namespace troupe::actors {
namespace {

/// Long enough for a busy machine; reached only when a test fails.
constexpr auto kPatience = std::chrono::seconds(60);

/// A head of another process, as a node sees it that does not obey it.
class HeadElsewhere : public caf::actor_proxy {
 public:
  using caf::actor_proxy::actor_proxy;

  void enqueue(caf::mailbox_element_ptr, caf::execution_unit*) override {}
  void kill_proxy(caf::execution_unit*, caf::error) override {}
};

/// A node that has the state of a layout without devices of its own, and knows two steps; or one
/// that waits for work.
class Waiting {
 public:
  explicit Waiting(double head_timeout_s, bool may_save = false, bool has_state = true,
                   std::int32_t local_nodes = 0, double silence_s = 60) {
    first_.welcome =
        second_.welcome = {NodeId{2}, "the job", 0.05, silence_s, 60, 60, "/shared/run", "5f0c", 2};
    ++second_.welcome.incarnation;
    std::ofstream file(folder_ / "samples.json");
    file << R"([{"id": "s", "conversations": [{"from": "human", "value": "q"}, )"
         << R"({"from": "gpt", "value": "a"}]}])";
    file.close();
    job::Job job = engine::tiny_job();
    job.data.sources = {{"llava", folder_ / "samples.json", folder_.path()}};
    job.cluster.head_timeout_s = head_timeout_s;
    job.cluster.local_nodes = local_nodes;
    resources_.setup = engine::prepare(job).value();
    resources_.dataset =
        std::make_shared<const data::Dataset>(data::Dataset::open(resources_.setup.data).value());
    head_ = system_.spawn(fake_supervisor, &first_);
    NodeStart start{{"host", 7, -1, "1.0"}, "head:7000", {}, {}};
    start.open = [this](const NodeWelcome&) -> Result<NodeReady> {
      resources_.transport = transport();
      return NodeReady{NodeId{2}, {1, 2}, {60, 7}};
    };
    start.on_end = [this](JobEnd how) { ended_.set_value(std::move(how)); };
    start.find_head = [this] {
      ++looks;
      const std::lock_guard lock(mutex_);
      return caf::actor_cast<caf::strong_actor_ptr>(next_);
    };
    if (may_save) start.save_as_head = [this] { ++saves; };
    start.tell_of_loss = [this](const std::string& text, bool) { told = text; };
    start.on_drain = [this] { ++drains; };
    node_ = system_.spawn(node, &resources_, head_, std::move(start));
    wait_until([this] { return first_.readies == 1; });
    if (!has_state) return;
    Configuration layout;
    layout.epoch_number = 3;
    layout.progress.step = 4;
    send_as_head(apply_atom::value, layout);
    send_as_head(settle_atom::value, EpochNumber{3});
    send_word(4);  // Of the layout before: its devices have finished it.
    wait_until([this] { return first_.applied == 1; });
  }

  ~Waiting() {
    caf::anon_send_exit(node_, caf::exit_reason::kill);
    caf::anon_send_exit(head_, caf::exit_reason::kill);
    caf::anon_send_exit(next_, caf::exit_reason::kill);
  }

  template <class... Values>
  void send_as_head(Values&&... values) {
    caf::send_as(head_, node_, std::forward<Values>(values)...);
  }

  /// An order of a head of another process than the one that the node obeys.
  template <class... Values>
  void send_from_elsewhere(Values&&... values) {
    caf::node_id::default_data::host_id_type host{};
    host.fill(7);
    caf::actor_config config;
    auto stranger = caf::make_actor<HeadElsewhere, caf::strong_actor_ptr>(
        caf::actor_id{1}, caf::make_node_id(7, host), &system_, config);
    caf::actor_cast<caf::strong_actor_ptr>(node_)->enqueue(
        std::move(stranger), caf::make_message_id(),
        caf::make_message(std::forward<Values>(values)...), nullptr);
  }

  static engine::StepVerdict word_on(std::int64_t step) {
    engine::StepVerdict word;
    word.decision.step = word.note.step = step;
    word.note.tokens = 10 * step;
    return word;
  }

  void send_word(std::int64_t step) { send_as_head(word_on(step)); }

  void lose_head() { caf::anon_send_exit(head_, caf::exit_reason::kill); }

  void start_another() {
    const auto next = system_.spawn(fake_supervisor, &second_);
    const std::lock_guard lock(mutex_);
    next_ = next;
  }

  static void wait_until(const std::function<bool()>& is_so) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!is_so()) {
      REQUIRE(std::chrono::steady_clock::now() < deadline);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  JobEnd how_it_ended() {
    auto ended = ended_.get_future();
    REQUIRE(ended.wait_for(kPatience) == std::future_status::ready);
    return ended.get();
  }

  SupervisorSeen first_, second_;
  NodeActor node_;
  std::atomic<int> looks = 0;
  std::atomic<int> saves = 0;
  std::atomic<int> drains = 0;
  std::string told;

 private:
  struct Config : caf::actor_system_config {
    Config() { add_messages(*this); }
  };

  static std::unique_ptr<transport::Transport> transport() {
    transport::TransportOptions options;
    options.hub = std::make_shared<transport::InprocHub>();
    options.self = 2;
    return transport::create_transport("inproc", options).value();
  }

  testing::ScratchFolder folder_;
  NodeResources resources_;
  std::promise<JobEnd> ended_;
  std::mutex mutex_;
  Config config_;
  caf::actor_system system_{config_};
  SupervisorActor head_, next_;
};

TEST_CASE("a node that loses its head shows another one what it holds", "[actors][takeover]") {
  Waiting waiting(60);
  waiting.lose_head();
  Waiting::wait_until([&] { return waiting.looks > 0; });
  CHECK(waiting.told ==
        "the connection to the supervisor was lost; its nodes keep the state of step 4 for 60 s: "
        "troupe train --resume /shared/run goes on");
  waiting.start_another();
  Waiting::wait_until([&] { return waiting.second_.hellos == 1; });
  const NodeHello hello = waiting.second_.hello();
  CHECK(hello.wanted_node == 2);
  CHECK(hello.incarnation == 2);
  REQUIRE(hello.holding.size() == 1);
  const NodeHolding& holding = hello.holding[0];
  CHECK(holding.ready.node == NodeId{2});
  CHECK((holding.ready.address == ByteString{1, 2}));
  CHECK(holding.epoch_number == 3);
  CHECK(holding.newest_epoch == 3);
  CHECK(holding.fetched_epoch == 0);
  CHECK(holding.progress.step == 4);
  CHECK(holding.verdicts.size() == 1);
  // It obeys that one now.
  Waiting::wait_until([&] { return waiting.second_.alive > 0; });
}

TEST_CASE("a node that is to leave tells the next head", "[actors][takeover]") {
  Waiting waiting(60);
  const bool by_signal = GENERATE(false, true), stays = GENERATE(false, true);
  if (by_signal)
    caf::anon_send(waiting.node_, stop_atom::value, static_cast<std::int32_t>(SIGTERM));
  for (const char* why : {"troupe ctl asks for it", ""})
    if (*why != 0 || stays) caf::anon_send(waiting.node_, leave_atom::value, std::string(why));
  waiting.lose_head();
  waiting.start_another();
  Waiting::wait_until([&] { return waiting.second_.hellos == 1; });
  const auto leaves = waiting.second_.hello().holding.at(0).leaves;
  REQUIRE(leaves.size() == (stays && !by_signal ? 0 : 1));
  if (leaves.empty()) return;
  CHECK(leaves[0].by_signal == by_signal);
  CHECK(leaves[0].why == (by_signal ? "stopped by SIGTERM" : "troupe ctl asks for it"));
}

TEST_CASE("a node has its time to leave once its process is to end and the head lets it",
          "[actors]") {
  Waiting waiting(60);
  waiting.send_as_head(leave_atom::value, std::string("troupe ctl asks for it"));
  caf::anon_send(waiting.node_, stop_atom::value, static_cast<std::int32_t>(SIGTERM));
  waiting.send_as_head(leave_atom::value, std::string());  // It was to stay, before that.
  waiting.send_as_head(leave_atom::value, std::string("stopped by SIGTERM"));
  Waiting::wait_until([&] { return waiting.drains > 0; });
  CHECK(waiting.drains == 1);
}

TEST_CASE("a node finishes a step whose word it heard before it shows what it holds",
          "[actors][takeover]") {
  Waiting waiting(60);
  waiting.send_word(5);
  waiting.lose_head();
  waiting.start_another();
  Waiting::wait_until([&] { return waiting.looks > 0; });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  CHECK(waiting.second_.hellos == 0);
  caf::anon_send(waiting.node_, engine::DeviceReport{5, 3, DeviceId{0}, {}, {}, {}, {}, 0, {}});
  Waiting::wait_until([&] { return waiting.second_.hellos == 1; });
  CHECK(waiting.second_.hello().holding.at(0).progress.step == 5);
  CHECK(waiting.second_.hello().holding.at(0).progress.tokens == 50);
}

TEST_CASE("a node waits for another head only so long", "[actors][takeover]") {
  Waiting waiting(0.3);
  waiting.lose_head();
  const JobEnd how = waiting.how_it_ended();
  CHECK(how.exit_code == 1);
  CHECK(how.message ==
        "node 2 ends: the connection to the supervisor was lost, and no other head came within "
        "0.3 s (cluster.head_timeout_s)");
  CHECK(waiting.saves == 0);
}

TEST_CASE("a node whose time is over starts a head that saves, once", "[actors][takeover]") {
  Waiting waiting(0.3, true);
  waiting.lose_head();
  Waiting::wait_until([&] { return waiting.saves == 1; });
  waiting.start_another();  // That one.
  Waiting::wait_until([&] { return waiting.second_.hellos == 1; });
  Waiting::wait_until([&] { return waiting.second_.alive > 0; });
  CHECK(waiting.saves == 1);
}

TEST_CASE("a node whose job does not want it waits for no head", "[actors][takeover]") {
  Waiting waiting(0);
  waiting.lose_head();
  CHECK(waiting.how_it_ended().message == "node 2 ends: the connection to the supervisor was lost");
  CHECK(waiting.looks == 0);
}

TEST_CASE("a node without state that loses its head joins the next one anew",
          "[actors][takeover]") {
  Waiting waiting(60, true, false);
  waiting.lose_head();
  Waiting::wait_until([&] { return waiting.looks > 0; });
  CHECK(waiting.told ==
        "the connection to the supervisor was lost; this node, which has no state yet, waits 60 s "
        "for it or for the next one");
  waiting.start_another();
  const JobEnd how = waiting.how_it_ended();
  CHECK(how.again == 1);
  CHECK(how.was_told);
  CHECK(waiting.second_.hellos == 0);  // The process does, once it has begun again.
}

TEST_CASE("a node without state waits for another head only so long", "[actors][takeover]") {
  Waiting waiting(0.3, true, false);
  waiting.lose_head();
  CHECK(waiting.how_it_ended().message ==
        "node 2 ends: the connection to the supervisor was lost, and no other head came within "
        "0.3 s (cluster.head_timeout_s)");
  CHECK(waiting.saves == 0);  // It has nothing that a head could save.
}

TEST_CASE("a node of the head's own without state ends with it", "[actors][takeover]") {
  Waiting waiting(60, true, false, 4);
  waiting.lose_head();
  CHECK(waiting.how_it_ended().message == "node 2 ends: the connection to the supervisor was lost");
}

TEST_CASE("a node without state hears a head that was only silent", "[actors][takeover]") {
  Waiting waiting(60, false, false, 4, 0.5);
  Waiting::wait_until([&] { return waiting.looks > 0; });
  int looks = 0;
  for (int i = 0; i < 60; ++i) {
    if (i == 20) looks = waiting.looks;  // The last one may have been under way.
    waiting.send_as_head(alive_atom::value);
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
  }
  CHECK(waiting.looks <= looks + 1);  // It looks for no other one any more.
  waiting.send_as_head(stop_atom::value, std::string(), 0);
  CHECK(waiting.how_it_ended().exit_code == 0);
}

TEST_CASE("a node that another head refuses ends and says why", "[actors][takeover]") {
  Waiting waiting(60);
  waiting.second_.refusal = Error{Errc::cancelled, "the job goes on without it", "", "start it"};
  waiting.lose_head();
  waiting.start_another();
  const JobEnd how = waiting.how_it_ended();
  CHECK(how.message == "node 2 ends: the job goes on without it\n  fix: start it");
  CHECK(how.exit_code == 1);
}

TEST_CASE("a node that comes too late for another head joins it anew", "[actors][takeover]") {
  Waiting waiting(60);
  waiting.second_.refusal = Error{Errc::cancelled, "the job goes on without it", "", ""};
  waiting.second_.sends_anew = true;
  waiting.lose_head();
  waiting.start_another();
  const JobEnd how = waiting.how_it_ended();
  CHECK(how.message == "the job goes on without it");
  CHECK(how.again == 1);
  CHECK(how.was_told);
}

TEST_CASE("a node that the head of another run turns away looks on", "[actors][takeover]") {
  Waiting waiting(60);
  waiting.second_.refusal = Error{Errc::unavailable, "it waits for another run's head", "", ""};
  waiting.lose_head();
  waiting.start_another();
  Waiting::wait_until([&] { return waiting.second_.hellos >= 2; });
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  CHECK(waiting.second_.hellos < 10);  // It is not pestered.
  CHECK(waiting.second_.alive == 0);
  CHECK(waiting.second_.hello().run_id == "5f0c");
}

TEST_CASE("a node obeys no head that is older than the one it lost", "[actors][takeover]") {
  Waiting waiting(60);
  waiting.second_.welcome.incarnation = 1;  // It was only stopped, and wakes.
  waiting.lose_head();
  waiting.start_another();
  Waiting::wait_until([&] { return waiting.second_.hellos >= 2; });
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  CHECK(waiting.second_.alive == 0);
}

TEST_CASE("a node follows no order of another head than the one it obeys", "[actors][takeover]") {
  Waiting waiting(60);
  Configuration layout;
  layout.epoch_number = 9;
  layout.progress.step = 40;
  waiting.send_from_elsewhere(apply_atom::value, layout);
  waiting.send_from_elsewhere(settle_atom::value, EpochNumber{9});
  waiting.send_from_elsewhere(Waiting::word_on(41));
  waiting.send_from_elsewhere(SaveOrder{5, 40, "/old", {}, false});
  waiting.send_from_elsewhere(leave_atom::value, std::string("troupe ctl asks for it"));
  waiting.send_from_elsewhere(begin_atom::value, std::string("begin again"));
  waiting.send_from_elsewhere(stop_atom::value, std::string("the job is over"), std::int32_t{0});
  waiting.lose_head();
  waiting.start_another();
  Waiting::wait_until([&] { return waiting.second_.hellos == 1; });
  const NodeHolding holding = waiting.second_.hello().holding.at(0);
  CHECK(holding.epoch_number == 3);
  CHECK(holding.newest_epoch == 3);
  CHECK(holding.progress.step == 4);
  CHECK(holding.verdicts.size() == 1);
  CHECK(holding.save_number == 0);
  CHECK(holding.leaves.empty());
}

TEST_CASE("a node that waits for a head ends at a signal", "[actors][takeover]") {
  Waiting waiting(60);
  waiting.lose_head();
  Waiting::wait_until([&] { return waiting.looks > 0; });
  caf::anon_send(waiting.node_, stop_atom::value, static_cast<std::int32_t>(SIGTERM));
  CHECK(waiting.how_it_ended().exit_code == 128 + SIGTERM);
}

}  // namespace
}  // namespace troupe::actors
