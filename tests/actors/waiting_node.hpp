// A node between a head that it may lose, another one, and a test that waits for what it does. It
// opens its data and looks for a head on threads of their own, so it runs on a real scheduler.

#pragma once

#include "tests/torch_catch.hpp"

#include <atomic>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "actors/node/node_actor.hpp"
#include "tests/actors/fake_actors.hpp"
#include "tests/engine/tiny_job.hpp"
#include "tests/support/scratch_folder.hpp"
#include "transport/inproc/hub.hpp"
#include "transport/registry.hpp"

namespace troupe::actors {

/// Long enough for a busy machine; reached only when a test fails.
inline constexpr auto kPatience = std::chrono::seconds(60);

/// A head of another process, as a node sees it that does not obey it.
class HeadElsewhere : public caf::actor_proxy {
 public:
  using caf::actor_proxy::actor_proxy;

  void enqueue(caf::mailbox_element_ptr, caf::execution_unit*) override {}
  void kill_proxy(caf::execution_unit*, caf::error) override {}
};

/// A node that has the state of a layout without devices of its own, and knows two steps; or one
/// that waits for work. `opens`: whether it has opened its data; else it does once it `may_open`.
class Waiting {
 public:
  explicit Waiting(double head_timeout_s, bool may_save = false, bool has_state = true,
                   std::int32_t local_nodes = 0, double silence_s = 60, bool is_heads_own = false,
                   bool opens = true)
      : may_open(opens) {
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
      while (!may_open) std::this_thread::sleep_for(std::chrono::milliseconds(5));
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
    start.hello.is_heads_own = is_heads_own;
    node_ = system_.spawn(node, &resources_, head_, std::move(start));
    if (!opens) return;
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
    may_open = true;
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

  void lose_another() {
    const std::lock_guard lock(mutex_);
    caf::anon_send_exit(next_, caf::exit_reason::kill);
  }

  /// Its devices have finished the step.
  void finish(std::int64_t step) {
    caf::anon_send(node_, engine::DeviceReport{step, 3, DeviceId{0}, {}, {}, {}, {}, 0, {}});
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
  std::atomic<bool> may_open;
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

}  // namespace troupe::actors
