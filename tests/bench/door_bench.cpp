// What the door costs: control messages between two processes, and joins, over plain TCP and behind
// the door (TLS 1.3 with a key), in turn within one run. See second_process.hpp.

#include <caf/all.hpp>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "tests/bench/report.hpp"
#include "tests/bench/second_process.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using troupe::bench::median;

constexpr int kRounds = 15;
constexpr int kMessages = 400;
constexpr int kNodes = 4;  // As the demo has.
constexpr auto kAnswerWithin = std::chrono::seconds(20);

double seconds_of(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// A message and its answer.
void ask(caf::scoped_actor& self, const caf::actor& target, const std::string& text) {
  self->request(target, kAnswerWithin, caf::ping_atom::value, text)
      .receive([](std::uint64_t) {},
               [](const caf::error&) { throw std::runtime_error("no answer"); });
}

/// One way of talking: its own second process and system.
struct Way {
  explicit Way(bool behind_door)
      : server(/*detached=*/true, behind_door),
        system(troupe::bench::immortal_system(/*remote=*/true)),
        target(troupe::bench::connect(system, server.port(), behind_door)) {}

  /// Seconds of a message with so many bytes and its short answer.
  double exchange_s(std::size_t bytes) {
    const std::string text(bytes, 'x');
    caf::scoped_actor self(system);
    return seconds_of([&] {
             for (int i = 0; i < kMessages; ++i) ask(self, target, text);
           }) /
           kMessages;
  }

  troupe::bench::Server server;
  caf::actor_system& system;
  caf::actor target;
};

/// Seconds until so many nodes have joined, one after the other, and each was answered once.
double join_s(const troupe::bench::Server& server, bool behind_door) {
  // Systems start in every process, with or without a door.
  std::vector<caf::actor_system*> nodes;
  for (int i = 0; i < kNodes; ++i) nodes.push_back(&troupe::bench::immortal_system(true));
  return seconds_of([&] {
    for (caf::actor_system* node : nodes) {
      const auto target = troupe::bench::connect(*node, server.port(), behind_door);
      caf::scoped_actor self(*node);
      ask(self, target, "here");
    }
  });
}

/// Both ways, and the median of what one takes longer in a round; a first round does not count.
void compare(const std::string& what, const std::string& size, const std::string& unit,
             double per_second, double bound, const std::function<double(bool)>& measure_s) {
  std::vector<double> plain, door, more;
  for (int round = 0; round <= kRounds; ++round) {
    // Who comes first has colder caches: by turns.
    const bool first = round % 2 == 0;
    const double one = per_second * measure_s(first), other = per_second * measure_s(!first);
    if (round == 0) continue;
    door.push_back(first ? one : other);
    plain.push_back(first ? other : one);
    more.push_back(door.back() - plain.back());
  }
  const auto line = [&](const std::string& words, const std::vector<double>& values,
                        nlohmann::json extra) {
    extra["better"] = "lower";
    extra["size"] = size;
    troupe::bench::report(what + ", " + words, median(values), unit, extra);
  };
  line("plain", plain, {});
  line("behind the door", door, {});
  line("what the door adds", more, {{"bound", bound}});
}

void measure() {
  Way plain(false), door(true);
  for (const auto& [bytes, size] :
       {std::pair{std::size_t{100}, "100 B"}, {4u << 10, "4 KiB"}, {64u << 10, "64 KiB"}})
    // Two messages: what is asked, and the answer. The bound is the goal: 0.1 ms a message.
    compare("a control message and its answer", size, "us", 1e6, 200,
            [&, count = bytes](bool behind) { return (behind ? door : plain).exchange_s(count); });
  compare("nodes join", std::to_string(kNodes) + " nodes", "ms", 1e3, 50,
          [&](bool behind) { return join_s((behind ? door : plain).server, behind); });
}

}  // namespace

int main(int count, char** arguments) {
  int code = 0;
  try {
    troupe::bench::serve_if_asked(count, arguments);
    measure();
  } catch (const std::exception& error) {
    std::cerr << "door_bench: " << error.what() << '\n';
    code = 1;
  }
  std::cout.flush();
  // Not by return: threads of the systems still run.
  std::_Exit(code);
}
