#include "runtime/observers/observing.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <future>
#include <stdexcept>
#include <thread>

namespace troupe::observers {
namespace {

using namespace std::chrono_literals;

/// What all observers of this test have seen, and what they are to do.
struct Stage {
  std::mutex mutex;
  std::vector<std::string> seen;
  std::promise<void> gate;
  std::shared_future<void> opened = gate.get_future().share();
  std::atomic<bool> holds = false, throws = false;

  std::vector<std::string> all() {
    const std::lock_guard lock(mutex);
    return seen;
  }
};
Stage* stage = nullptr;

class Noting final : public Observer {
 public:
  explicit Noting(Place place) : place_(std::move(place)) {}
  void see(const Observed& part) override {
    if (stage->holds) stage->opened.wait();
    if (stage->throws) throw std::runtime_error("enough");
    note(part.module + " " + std::to_string(part.step));
  }
  void see(const ObservedStep& step) override { note("step " + std::to_string(step.step)); }
  void end() override { note("end of " + place_.options); }

 private:
  static void note(std::string text) {
    const std::lock_guard lock(stage->mutex);
    stage->seen.push_back(std::move(text));
  }
  Place place_;
};

struct Fixture {
  Stage own;
  std::filesystem::path run =
      std::filesystem::temp_directory_path() / ("troupe-observers-" + std::to_string(::getpid()));

  Fixture() {
    stage = &own;
    static const bool registered =
        register_observer(
            {"noting", [](const Place& place) { return std::make_unique<Noting>(place); }})
            .ok();
    REQUIRE(registered);
  }
  ~Fixture() { std::filesystem::remove_all(run); }

  static std::shared_ptr<const Observed> part(const std::string& module, std::int64_t step,
                                              Kind kind = Kind::rows) {
    auto observed = std::make_shared<Observed>();
    observed->module = module;
    observed->step = step;
    observed->kind = kind;
    return observed;
  }
};

/// All rows, for the observer of this test.
Watch watch(const std::string& options = {}, std::int64_t queue = 64) {
  Watch watch;
  watch.name = "noting";
  watch.options = options;
  watch.queue = queue;
  return watch;
}

ObservedStep word(std::int64_t step) {
  ObservedStep word;
  word.step = step;
  return word;
}

/// Waits until it holds, at most five seconds.
template <class Condition>
bool soon(const Condition& condition) {
  for (int round = 0; round < 5000 && !condition(); ++round) std::this_thread::sleep_for(1ms);
  return condition();
}

TEST_CASE("an observer sees what it asked for, in order, and ends after all of it") {
  Fixture fixture;
  Watch some = watch("it");
  some.module = "vision";
  some.every_steps = 2;
  Observing observing({some}, "job", 3, fixture.run);
  CHECK(observing.wants(2, "vision", Kind::rows));
  CHECK_FALSE(observing.wants(1, "vision", Kind::rows));
  CHECK_FALSE(observing.wants(2, "llm", Kind::rows));
  CHECK_FALSE(observing.wants(2, "vision", Kind::gradients));
  CHECK_FALSE(observing.wants(2, "vision", Kind::losses));
  for (const std::int64_t step : {1, 2}) {
    for (const char* module : {"vision", "llm"}) observing.show(fixture.part(module, step));
    observing.show(fixture.part("vision", step, Kind::gradients));
    observing.show(word(step));
  }
  observing.end(5s);
  CHECK(fixture.own.all() == std::vector<std::string>{"step 1", "vision 2", "step 2", "end of it"});
  const Tally tally = observing.take_tally();
  CHECK(tally.shown == 1);
  CHECK(tally.dropped == 0);
  CHECK(tally.troubles.empty());
  CHECK(std::filesystem::is_directory(fixture.run / "observers" / "noting"));
}

TEST_CASE("a queue that is full drops parts and counts them, and nobody waits") {
  Fixture fixture;
  fixture.own.holds = true;
  Observing observing({watch("it", 3)}, "job", 0, fixture.run);
  const auto begin = std::chrono::steady_clock::now();
  for (std::int64_t step = 1; step <= 10; ++step) {
    observing.show(fixture.part("llm", step));
    observing.show(word(step));
  }
  CHECK(std::chrono::steady_clock::now() - begin < 2s);
  const Tally tally = observing.take_tally();
  CHECK(tally.shown == 3);
  CHECK(tally.dropped == 7);
  CHECK(observing.take_tally().dropped == 0);  // Told once.
  fixture.own.gate.set_value();
  observing.end(5s);
  const auto seen = fixture.own.all();
  CHECK(std::ranges::count_if(seen, [](const auto& text) { return text.starts_with("llm"); }) == 3);
  CHECK(seen.back() == "end of it");
  CHECK(std::ranges::count(seen, "step 10") == 1);  // The newest word is never lost.
}

TEST_CASE("what an observer throws ends it alone, and is told once") {
  Fixture fixture;
  fixture.own.throws = true;
  Watch unknown;
  unknown.name = "none";
  Observing observing({watch(), watch(), unknown}, "job", 5, fixture.run);
  observing.show(fixture.part("llm", 1));
  std::vector<std::string> troubles;
  REQUIRE(soon([&] {
    for (auto& trouble : observing.take_tally().troubles) troubles.push_back(std::move(trouble));
    return troubles.size() == 3;
  }));
  std::ranges::sort(troubles);
  CHECK(troubles[0] == "observer 'none' on node 5 sees nothing any more: nothing is called so");
  CHECK(troubles[1] == "observer 'noting' on node 5 sees nothing any more: it throws: enough");
  CHECK(observing.take_tally().troubles.empty());
  fixture.own.throws = false;
  observing.show(fixture.part("llm", 2));
  CHECK(observing.take_tally().dropped == 3);
  // Two of one name have folders of their own.
  CHECK(std::filesystem::is_directory(fixture.run / "observers" / "noting-2"));
  observing.end(5s);
  CHECK(fixture.own.all().empty());
}

TEST_CASE("each observer has a folder of its own, whatever others are called") {
  Fixture fixture;
  const auto make = [](const Place& place) { return std::make_unique<Noting>(place); };
  REQUIRE(register_observer({"noting-2", make}).ok());
  Watch other = watch();
  other.name = "noting-2";
  Observing observing({watch(), watch(), other, watch(), other}, "job", 0, fixture.run);
  observing.end(5s);
  std::vector<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator(fixture.run / "observers"))
    folders.push_back(entry.path().filename().string());
  std::ranges::sort(folders);
  // By hand: noting, then, as noting-2 is another one's, noting-3 and noting-4; its second one.
  CHECK(folders ==
        std::vector<std::string>{"noting", "noting-2", "noting-2-2", "noting-3", "noting-4"});
}

/// Throws, and cannot be destroyed as long as the gate is closed.
class Clinging final : public Observer {
 public:
  void see(const Observed&) override { throw std::runtime_error("enough"); }
  ~Clinging() override { stage->opened.wait(); }
};

TEST_CASE("what an observer has thrown is told also where it cannot be let go of") {
  Fixture fixture;
  REQUIRE(register_observer({"clinging", [](const Place&) { return std::make_unique<Clinging>(); }})
              .ok());
  Watch clinging = watch();
  clinging.name = "clinging";
  Observing observing({clinging}, "job", 0, fixture.run);
  observing.show(fixture.part("llm", 1));
  std::vector<std::string> troubles;
  CHECK(soon([&] {
    if (troubles.empty()) troubles = observing.take_tally().troubles;
    return !troubles.empty();
  }));
  CHECK(troubles == std::vector<std::string>{"observer 'clinging' on node 0 sees nothing any "
                                             "more: it throws: enough"});
  fixture.own.gate.set_value();
  observing.end(5s);
  CHECK(observing.take_tally().troubles.empty());  // Once.
}

TEST_CASE("one that hangs is left behind") {
  static Fixture fixture;  // Its thread outlives this case.
  fixture.own.holds = true;
  stage = &fixture.own;
  const auto begin = std::chrono::steady_clock::now();
  {
    Observing observing({watch()}, "job", 0, fixture.run);
    observing.show(Fixture::part("llm", 1));
    observing.end(100ms);
  }
  CHECK(std::chrono::steady_clock::now() - begin < 2s);
  fixture.own.gate.set_value();
  CHECK(soon([] { return fixture.own.all().size() == 2; }));  // It lets go of what it holds.
}

TEST_CASE("names are those of job files, and stand for one observer") {
  const auto make = [](const Place&) -> std::unique_ptr<Observer> { return nullptr; };
  CHECK_FALSE(register_observer({"Big", make}).ok());
  CHECK_FALSE(register_observer({"", make}).ok());
  CHECK_FALSE(register_observer({"empty", nullptr}).ok());
  REQUIRE(register_observer({"twice", make}).ok());
  const auto again = register_observer({"twice", make});
  REQUIRE_FALSE(again.ok());
  CHECK(again.error().message == "observer 'twice' is there already");
  CHECK(find_observer("twice") != nullptr);
  CHECK(find_observer("thrice") == nullptr);
}

TEST_CASE("values are read in the type in which they were computed") {
  const float narrow[] = {1.5F, -2.25F};
  const double wide[] = {0.1, 1e300};
  const std::uint16_t half[] = {0x3f80, 0xc020};  // 1 and -2.5.
  CHECK(Values(nullptr, narrow, 2, Dtype::fp32)[1] == -2.25);
  CHECK(Values(nullptr, wide, 2, Dtype::fp64)[1] == 1e300);
  CHECK(Values(nullptr, wide, 2, Dtype::fp64)[0] == 0.1);
  CHECK(Values(nullptr, half, 2, Dtype::bf16)[0] == 1);
  CHECK(Values(nullptr, half, 2, Dtype::bf16)[1] == -2.5);
}

}  // namespace
}  // namespace troupe::observers
