#include "actors/observing/own_listener.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/observers/observing.hpp"
#include "tests/actors/observed_job.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using observers::Kind;
using observers::Observing;
using observers::Tally;

/// What the actors of a case are to do, and what became of it.
struct Script {
  Heard heard;  ///< Of the one that notes, to be read when all have ended.
  std::promise<void> gate;
  std::shared_future<void> opened = gate.get_future().share();
  std::atomic<int> begun = 0, done = 0;  ///< Pieces, of the one that waits for the gate.
  std::atomic<bool> throws = false, is_silent = false, cannot_be = false;
};
Script* script = nullptr;

/// Waits in its handler, as long as the gate is closed.
ListenerActor::behavior_type waiting(ListenerActor::pointer self, const ObservingHubActor& hub,
                                     const ListenRequest& request, const observers::Place&) {
  if (script->cannot_be) throw std::runtime_error("no place");
  if (script->is_silent)
    self->send(self, over_atom::value, 0, std::string());
  else
    self->request(hub, 5s, listen_atom::value, request).then([](const ListenWelcome&) {});
  return {
      [](here_atom, std::int32_t, std::int64_t) {},
      [](gone_atom, std::int32_t) {},
      [self, hub](const SeenPiece& piece) {
        ++script->begun;
        script->opened.wait();
        if (script->throws) throw std::runtime_error("enough");
        ++script->done;
        self->send(hub, took_atom::value, piece.node, weight_of(piece));
      },
      [self, hub](const SeenStep& step) {
        self->send(hub, took_atom::value, step.node, weight_of(step));
      },
      [](lives_atom) {},
      [self](over_atom, std::int32_t, const std::string&) { self->quit(); },
      [](gone_atom, const std::string&) {},
  };
}

/// Registers both: that one, and the listener of a job that is looked at from outside.
bool register_both() {
  const auto noting = [](ListenerActor::pointer self, const ObservingHubActor& hub,
                         const ListenRequest& request, const observers::Place&) {
    return listener(self, &script->heard, hub, request);
  };
  return register_listener({"noting", noting}).ok() && register_listener({"waiting", waiting}).ok();
}

struct Fixture {
  Script own;
  std::filesystem::path run =
      std::filesystem::temp_directory_path() / ("troupe-listeners-" + std::to_string(::getpid()));

  Fixture() {
    script = &own;
    static const bool registered = register_both();
    REQUIRE(registered);
  }
  ~Fixture() { std::filesystem::remove_all(run); }
};

observers::Watch rows_for(const std::string& name, std::int64_t queue = 64) {
  observers::Watch watch;
  watch.name = name;
  watch.queue = queue;
  return watch;
}

observers::ObservedStep word(std::int64_t step) {
  observers::ObservedStep word;
  word.step = step;
  word.loss = 0.5;
  return word;
}

/// Waits until it holds, at most five seconds.
template <class Condition>
bool soon(const Condition& condition) {
  for (int round = 0; round < 5000 && !condition(); ++round) std::this_thread::sleep_for(1ms);
  return condition();
}

/// The first trouble that is told.
std::string trouble_of(Observing& observing) {
  std::vector<std::string> told;
  soon([&] {
    if (told.empty()) told = observing.take_tally().troubles;
    return !told.empty();
  });
  return told.empty() ? "" : told.front();
}

TEST_CASE("the actor that looks from outside is shown the same in a node's process", "[actors]") {
  Fixture fixture;
  Observing observing({rows_for("noting")}, "job", 3, fixture.run);
  observing.show(part(1, kLarge));
  observing.show(part(1, 3, Kind::losses));  // The job file did not ask for them.
  observing.show(word(1));
  observing.end(5s);
  const Heard& heard = fixture.own.heard;
  REQUIRE(heard.welcome);
  CHECK(heard.welcome->job == "job");
  CHECK(heard.welcome->nodes == std::vector<std::int32_t>{3});
  CHECK(heard.here == std::vector<std::pair<std::int32_t, std::int64_t>>{{3, 1}});
  REQUIRE(heard.pieces.size() == 3);
  std::vector<std::uint8_t> bytes;
  for (const SeenPiece& piece : heard.pieces) {
    CHECK(piece.node == 3);
    CHECK(piece.begin == bytes.size());
    bytes.insert(bytes.end(), piece.bytes.begin(), piece.bytes.end());
  }
  REQUIRE(bytes.size() == kLarge * 4);
  CHECK(std::memcmp(bytes.data(), part(1, kLarge)->values.data(), bytes.size()) == 0);
  REQUIRE(heard.steps.size() == 1);
  CHECK(heard.steps[0].loss == 0.5);
  CHECK(heard.ends == std::vector<std::int32_t>{-1});
  const Tally tally = observing.take_tally();
  CHECK(tally.shown == 1);
  CHECK(tally.troubles.empty());
}

TEST_CASE("an actor sees all kinds that its table of the job file has", "[actors]") {
  Fixture fixture;
  observers::Watch all = rows_for("noting");
  all.gradients = all.losses = true;
  Observing observing({all}, "job", 0, fixture.run);
  for (const Kind kind : {Kind::rows, Kind::gradients, Kind::losses})
    observing.show(part(1, 2, kind));
  observing.end(5s);
  std::vector<std::uint8_t> kinds;
  for (const SeenPiece& piece : fixture.own.heard.pieces) kinds.push_back(piece.kind);
  CHECK(kinds == std::vector<std::uint8_t>{0, 1, 2});
}

TEST_CASE("what an actor is too slow for is dropped before it and counted, and nobody waits",
          "[actors]") {
  Fixture fixture;
  Observing observing({rows_for("waiting", 3)}, "job", 0, fixture.run);
  observing.show(part(1, 4));
  CHECK(soon([&] { return fixture.own.begun == 1; }));
  const auto begin = std::chrono::steady_clock::now();
  for (std::int64_t step = 2; step <= 10; ++step) observing.show(part(step, 4));
  CHECK(std::chrono::steady_clock::now() - begin < 2s);
  // By hand: it holds one, so two more may wait.
  const Tally tally = observing.take_tally();
  CHECK(tally.shown == 3);
  CHECK(tally.dropped == 7);
  fixture.own.gate.set_value();
  observing.end(5s);
  CHECK(fixture.own.done.load() == 3);
  CHECK(observing.take_tally().troubles.empty());
}

TEST_CASE("what an actor throws ends it alone, and is told once", "[actors][errors]") {
  Fixture fixture;
  fixture.own.throws = true;
  fixture.own.gate.set_value();
  Observing observing({rows_for("waiting"), rows_for("noting")}, "job", 5, fixture.run);
  observing.show(part(1, 4));
  CHECK(trouble_of(observing) ==
        "observer 'waiting' on node 5 sees nothing any more: it throws: enough");
  observing.show(part(2, 4));
  observing.end(5s);
  const Tally tally = observing.take_tally();
  CHECK(tally.dropped == 1);
  CHECK(tally.troubles.empty());
  CHECK(fixture.own.heard.pieces.size() == 2);  // The other one looks on.
}

TEST_CASE("an actor that does not begin to listen is told of", "[actors][errors]") {
  Fixture fixture;
  fixture.own.is_silent = true;
  Observing silent({rows_for("waiting")}, "job", 0, fixture.run);
  silent.show(part(1, 4));
  CHECK_THAT(trouble_of(silent), ContainsSubstring("its actor does not listen: it did not ask"));
  silent.end(5s);
  fixture.own.cannot_be = true;
  Observing impossible({rows_for("waiting")}, "job", 0, fixture.run);
  impossible.show(part(1, 4));
  CHECK_THAT(trouble_of(impossible), ContainsSubstring("it throws: no place"));
  impossible.end(5s);
}

TEST_CASE("an actor that hangs is left behind with its system, and holds no node's end up",
          "[actors]") {
  // Never destroyed: its threads outlive this case.
  static Fixture& fixture = *new Fixture;
  Observing observing({rows_for("waiting")}, "job", 0, fixture.run);
  observing.show(part(1, 4));
  CHECK(soon([&] { return fixture.own.begun == 1; }));
  observing.show(part(2, 4));
  const auto begin = std::chrono::steady_clock::now();
  observing.end(100ms);
  CHECK(std::chrono::steady_clock::now() - begin < 3s);
  CHECK(fixture.own.begun.load() == 1);
  const Tally tally = observing.take_tally();
  CHECK(tally.shown == 2);
  CHECK(tally.troubles.empty());
}

TEST_CASE("actors and observers share their names", "[actors][errors]") {
  Fixture fixture;
  const auto again = register_listener({"waiting", waiting});
  REQUIRE_FALSE(again.ok());
  CHECK(again.error().message == "observer 'waiting' is there already");
  CHECK_FALSE(register_listener({"Big", waiting}).ok());
  CHECK_FALSE(register_listener({"empty", nullptr}).ok());
}

}  // namespace
}  // namespace troupe::actors
