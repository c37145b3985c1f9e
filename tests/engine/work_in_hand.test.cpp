#include "tests/torch_catch.hpp"

#include "engine/execution/work_in_hand.hpp"

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/engine/hooked_stage.hpp"
#include "tests/engine/tiny_cluster.hpp"

namespace troupe::engine {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Names work by the group of its action; work that is none has no group.
LongWork by_group(const Action* action, const StageCall&) {
  LongWork work{DeviceId{0}};
  work.work.step = action == nullptr ? -1 : action->group.value;
  return work;
}

Action action_of(std::int32_t group) {
  Action action;
  action.group = GroupId{group};
  return action;
}

TEST_CASE("what a device has in hand is the oldest that has not completed, or where a thread is",
          "[engine]") {
  const Action first = action_of(1), second = action_of(2), third = action_of(3);
  WorkInHand hand;
  hand.belong_to(by_group);
  CHECK_FALSE(hand.longer_than(0));
  const auto launch = std::make_shared<Launch>(), later = std::make_shared<Launch>();
  hand.launched(&first, launch);
  hand.launched(&second, later);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  REQUIRE(hand.longer_than(0.03));
  CHECK(hand.longer_than(0.03)->work.step == 1);
  CHECK(hand.longer_than(0)->seconds >= 0.03);
  CHECK_FALSE(hand.longer_than(1000));

  // The device turns to the second when the first has completed, not when it was launched.
  const auto before = Clock::now();
  launch->complete(Done{});
  const auto behind = hand.longer_than(0);
  REQUIRE(behind);
  CHECK(behind->work.step == 2);
  CHECK(behind->seconds <= seconds_since(before));

  // A thread that is in work holds up all that was launched.
  hand.entered(&third);
  CHECK(hand.longer_than(0)->work.step == 3);
  hand.entered(nullptr);
  CHECK(hand.longer_than(0)->work.step == -1);
  hand.left();
  CHECK(hand.longer_than(0)->work.step == 2);

  hand.taken();
  CHECK(hand.longer_than(0)->work.step == 2);
  hand.taken();
  CHECK_FALSE(hand.longer_than(0));
  hand.launched(&second, later);
  hand.dropped();
  CHECK_FALSE(hand.longer_than(0));
  hand.entered(&third);
  hand.belong_to({});
  CHECK_FALSE(hand.longer_than(0));
}

TEST_CASE("work of no action has the function that it calls in hand, since it does", "[engine]") {
  WorkInHand hand;
  hand.belong_to([](const Action*, const StageCall& call) {
    LongWork work{DeviceId{0}};
    work.work.step = call.stage.value;
    work.work.thrown = call.function;
    return work;
  });
  {
    const Presence presence(&hand, nullptr, {StageId{2}, "losses"});
    REQUIRE(hand.longer_than(0));
    CHECK(hand.longer_than(0)->work.step == 2);
    CHECK(hand.longer_than(0)->work.thrown == "losses");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK(hand.longer_than(0.02));
    const auto before = Clock::now();
    hand.calls({StageId{3}, "begin"});
    const auto called = hand.longer_than(0);
    REQUIRE(called);
    CHECK(called->work.step == 3);
    CHECK(called->work.thrown == "begin");
    CHECK(called->seconds <= seconds_since(before));
  }
  CHECK_FALSE(hand.longer_than(0));
  hand.calls({StageId{3}, "begin"});  // No thread is there.
  CHECK_FALSE(hand.longer_than(0));
}

TEST_CASE("a device waits until it launches work, anew where something has come", "[engine]") {
  WorkInHand hand;
  CHECK_FALSE(hand.wait());
  LongWait wait{DeviceId{1}, 3, 1, 7};
  wait.awaited.resize(2);
  hand.waits(wait);
  REQUIRE(hand.wait());
  CHECK(hand.wait()->number == 1);
  CHECK(hand.wait()->wait.next_action == 7);
  hand.waits(wait);  // Somebody woke it in vain.
  CHECK(hand.wait()->number == 1);
  wait.awaited.resize(1);
  hand.waits(wait);
  CHECK(hand.wait()->number == 2);
  CHECK(hand.wait()->wait.awaited.size() == 1);
  const auto launch = std::make_shared<Launch>();
  hand.launched(nullptr, launch);
  CHECK_FALSE(hand.wait());
  hand.waits(wait);
  CHECK(hand.wait()->number == 3);
  hand.dropped();
  CHECK_FALSE(hand.wait());
  hand.waits(wait);
  hand.belong_to(by_group);
  CHECK_FALSE(hand.wait());
}

TEST_CASE("a copy that is under way is in hand, and a device waits for nobody meanwhile",
          "[engine]") {
  const Action first = action_of(1);
  const LongWait wait{DeviceId{1}, 3, 1, 7};
  WorkInHand hand;
  hand.belong_to(by_group);
  hand.waits(wait);
  const auto copy = std::make_shared<Launch>(), launch = std::make_shared<Launch>();
  hand.copies(copy);
  CHECK_FALSE(hand.wait());
  REQUIRE(hand.longer_than(0));
  CHECK(hand.longer_than(0)->work.step == -1);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  hand.launched(&first, launch);
  CHECK(hand.longer_than(0)->work.step == -1);  // It is the older one.
  copy->complete(Done{});
  CHECK(hand.longer_than(0)->work.step == 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  hand.copies(std::make_shared<Launch>());
  CHECK(hand.longer_than(0)->work.step == 1);
  launch->complete(Done{});
  hand.taken();
  CHECK(hand.longer_than(0)->work.step == -1);
  hand.waits(wait);
  CHECK_FALSE(hand.wait());
  hand.copies(nullptr);
  CHECK(hand.wait());
  CHECK_FALSE(hand.longer_than(0));
  hand.copies(std::make_shared<Launch>());
  hand.dropped();
  CHECK_FALSE(hand.longer_than(0));
  hand.copies(std::make_shared<Launch>());
  hand.belong_to(by_group);
  CHECK_FALSE(hand.longer_than(0));
}

TEST_CASE("a stage that is at it is named with stage, microbatch, step and samples",
          "[engine][errors]") {
  for (const double delay_ms : {0.0, 0.2}) {
    job::Job job = tiny_job();
    job.debug.delayed_device_ms = delay_ms;
    std::map<DeviceId, std::unique_ptr<WorkInHand>> hands;
    std::vector<std::unique_ptr<HookedStage>> hooked;
    std::optional<LongWork> seen, too_soon;
    Cluster cluster(
        job, {},
        [&](ExecutorOptions& options) {
          hands[options.device] = std::make_unique<WorkInHand>();
          options.in_hand = hands.at(options.device).get();
        },
        {}, {},
        [&](StageId stage, ModelStage& inner) -> StageProgram* {
          if (stage != StageId{1}) return &inner;
          hooked.push_back(std::make_unique<HookedStage>(inner, [&] {
            // The thread that is in the stage asks here for the one that watches it.
            seen = hands.at(DeviceId{1})->longer_than(0);
            too_soon = hands.at(DeviceId{1})->longer_than(1000);
          }));
          return hooked.back().get();
        });
    cluster.train(0);
    REQUIRE(seen);
    CHECK_FALSE(too_soon);
    CHECK(seen->device == DeviceId{1});
    CHECK(seen->seconds >= 0);
    CHECK(seen->work.step == 1);
    CHECK(seen->work.epoch_number == 1);
    CHECK(seen->work.thrown == "the work does not return");
    CHECK(seen->work.error.code == Errc::timed_out);
    CHECK(seen->work.error.fix.find("train.stall_timeout_s") != std::string::npos);
    INFO(seen->work.error.message);
    CHECK(seen->work.error.message.starts_with(
        "the work does not return, in step 1 on device 1, forward of stage 1 (llm layers 0 to 3) "
        "for samples 's"));
    CHECK(seen->work.error.message.ends_with("of microbatch 1"));
    REQUIRE_FALSE(seen->work.samples.empty());
    for (const std::string& sample : seen->work.samples) CHECK(sample.starts_with("s"));
    for (const auto& [device, hand] : hands) CHECK_FALSE(hand->longer_than(0));
  }
}

/// Says which of its functions that are called beside the list it is in.
class PeekingStage final : public HookedStage {
 public:
  PeekingStage(StageProgram& inner, std::function<void(const std::string&)> tell)
      : HookedStage(inner, [] {}), tell_(std::move(tell)) {}

  bool show_to(Viewer* /*viewer*/) override {
    tell_("show_to");
    return false;
  }
  Status begin(const IterationPlan& plan, const data::DecodedSamples& samples) override {
    tell_("begin");
    return HookedStage::begin(plan, samples);
  }
  void abandon() override {
    tell_("abandon");
    HookedStage::abandon();
  }
  std::vector<PartLoss> losses() const override {
    tell_("losses");
    return HookedStage::losses();
  }
  std::vector<PartAuxiliary> auxiliary() const override {
    tell_("auxiliary");
    return {};
  }
  std::vector<models::Parameter*> parameters() override {
    tell_("parameters");
    return HookedStage::parameters();
  }

 private:
  std::function<void(const std::string&)> tell_;
};

TEST_CASE("a function of a stage that is called beside the list is named with its stage",
          "[engine][errors]") {
  std::map<DeviceId, std::unique_ptr<WorkInHand>> hands;
  std::map<std::string, std::string> seen;  // What is said meanwhile, by the function.
  std::vector<std::unique_ptr<PeekingStage>> peeking;
  Cluster cluster(
      tiny_job(), {},
      [&](ExecutorOptions& options) {
        hands[options.device] = std::make_unique<WorkInHand>();
        options.in_hand = hands.at(options.device).get();
      },
      {}, {},
      [&](StageId stage, ModelStage& inner) -> StageProgram* {
        if (stage != StageId{1}) return &inner;
        peeking.push_back(std::make_unique<PeekingStage>(inner, [&](const std::string& function) {
          // The thread that is in the stage asks here for the one that watches it.
          const auto work = hands.at(DeviceId{1})->longer_than(0);
          seen[function] = work ? work->work.error.message : "nothing";
        }));
        return peeking.back().get();
      });
  cluster.train(0);
  REQUIRE(cluster.executor(1).parameters().ok());
  REQUIRE(cluster.executor(1).abandon().ok());
  for (const std::string function : {"show_to", "begin", "losses", "auxiliary"})
    CHECK(seen[function] == "the work does not return, in step 1 on device 1, `" + function +
                                "` of stage 1 (llm layers 0 to 3)");
  for (const std::string function : {"parameters", "abandon"})
    CHECK(seen[function] == "the work does not return, behind step 1 on device 1, `" + function +
                                "` of stage 1 (llm layers 0 to 3)");
  CHECK_FALSE(hands.at(DeviceId{1})->longer_than(0));
}

TEST_CASE("nothing is in hand of a step that was given up", "[engine][recovery]") {
  job::Job job = tiny_job();
  job.debug.delayed_device_ms = 5;
  std::map<DeviceId, std::unique_ptr<WorkInHand>> hands;
  Cluster cluster(job, {}, [&](ExecutorOptions& options) {
    hands[options.device] = std::make_unique<WorkInHand>();
    options.in_hand = hands.at(options.device).get();
  });
  cluster.begin(0);
  REQUIRE(cluster.executor(0).advance().ok());
  for (std::size_t device = 0; device < 4; ++device)
    REQUIRE(cluster.executor(device).abandon().ok());
  for (const auto& [device, hand] : hands) CHECK_FALSE(hand->longer_than(0));
}

}  // namespace
}  // namespace troupe::engine
