#include "actors/link/observing.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/actors/observed_job.hpp"

namespace troupe::actors {
namespace {

using Catch::Matchers::ContainsSubstring;
using observers::Kind;
using observers::Listeners;

TEST_CASE("a listener is shown what each node computes, in pieces and in order", "[actors]") {
  Job job(2);
  Heard heard;
  const auto actor = job.listen(heard);
  REQUIRE(heard.welcome);
  CHECK(heard.welcome->job == "job");
  CHECK(heard.welcome->nodes == std::vector<std::int32_t>{0, 1});
  CHECK(heard.here == std::vector<std::pair<std::int32_t, std::int64_t>>{{0, 1}, {1, 1}});
  job.compute(1, 1, kLarge);
  job.compute(1, 1, 3, Kind::losses);  // Nobody asked for them.
  job.decide(1, 1);
  job.system.run();
  REQUIRE(heard.pieces.size() == 3);
  std::vector<std::uint8_t> bytes;
  for (const SeenPiece& piece : heard.pieces) {
    CHECK(piece.node == 1);
    CHECK(piece.bytes.size() <= kPieceBytesMax);
    CHECK(piece.begin == bytes.size());
    CHECK(piece.bytes_all == kLarge * 4);
    bytes.insert(bytes.end(), piece.bytes.begin(), piece.bytes.end());
  }
  CHECK(bytes.size() == kLarge * 4);
  CHECK(heard.pieces[0].ids == std::vector<std::string>{"a"});
  CHECK(heard.pieces[1].ids.empty());
  REQUIRE(heard.steps.size() == 1);
  CHECK(heard.steps[0].loss == 0.5);
  CHECK(heard.steps[0].shown == 1);
  CHECK(heard.steps[0].dropped == 0);
  Job::end(actor);
  job.system.run();
  CHECK(job.log.size() == 2);
  CHECK_THAT(job.log[0], ContainsSubstring("looks at rows"));
  CHECK_THAT(job.log[1], ContainsSubstring("it left; it was shown 1 parts and missed 0"));
  job.compute(1, 2, 4);
  CHECK_FALSE(job.listeners[1].wants(3, "vision", Kind::rows));
}

TEST_CASE("of what a listener does not take no more than so much is under way", "[actors]") {
  Job job(1);
  Heard heard;
  heard.hangs = true;
  ListenRequest request;
  request.queue = 2;
  const auto actor = job.listen(heard, request);
  for (int i = 0; i < 40; ++i) {
    job.compute(0, 1, kLarge);
    job.system.run();
  }
  std::uint64_t weight = 0;
  for (const SeenPiece& piece : heard.pieces) weight += weight_of(piece);
  CHECK(weight >= kUntakenMax);
  CHECK(weight < kUntakenMax + 2 * kPieceBytesMax);
  // By hand: a part is 262,184 bytes and 512 KiB are under way, so that two parts were sent or are
  // being sent, and two wait.
  CHECK(job.listeners[0].take_tally().dropped == 40 - 4);
  Job::end(actor);
}

TEST_CASE("who leaves is told what it missed since the last word on a step", "[actors]") {
  Job job(2);
  Heard heard, killed;
  heard.hangs = killed.hangs = true;
  ListenRequest request;
  request.queue = 2;
  const auto actor = job.listen(heard, request), other = job.listen(killed, request);
  for (int i = 0; i < 10; ++i) {
    job.compute(0, 1, kLarge);
    job.compute(1, 1, 3);
    job.system.run();
  }
  heard.has_enough = true;
  job.system.pass(std::chrono::seconds(1));
  // By hand, as above: two of the large parts are under way and two wait; all small ones went.
  REQUIRE(heard.counts);
  CHECK(heard.counts->shown == 4 + 10);
  CHECK(heard.counts->dropped == 6);
  CHECK_THAT(job.log.back(), ContainsSubstring("it left; it was shown 14 parts and missed 6"));
  CHECK(job.listeners[0].count(1).shown == 0);  // It is forgotten.
  Job::end(other);
  job.system.run();
  CHECK(job.log.size() == 4);
  CHECK_THAT(job.log.back(), ContainsSubstring("it left; it was shown 14 parts and missed 6"));
  heard.counts.reset();
  heard.has_enough = true;
  job.system.pass(std::chrono::seconds(1));
  CHECK_FALSE(heard.counts);  // Who does not listen is not answered: no hub is heard of.
  Job::end(actor);
}

TEST_CASE("a listener that takes nothing for long is let go", "[actors]") {
  Job job(1);
  Heard idle, hanging;
  hanging.hangs = true;
  const auto first = job.listen(idle), second = job.listen(hanging);
  job.system.pass(std::chrono::seconds(40));  // There is nothing to take.
  CHECK(hanging.dismissals.empty());
  job.compute(0, 1, 4);
  job.system.pass(std::chrono::seconds(29));
  CHECK(hanging.dismissals.empty());
  job.system.pass(std::chrono::seconds(3));
  CHECK(hanging.dismissals == std::vector<std::string>{"it took nothing for 30 s"});
  CHECK(idle.dismissals.empty());
  CHECK_THAT(job.log.back(), ContainsSubstring("looks no more: it took nothing for 30 s"));
  job.compute(0, 2, 4);
  job.system.run();
  CHECK(hanging.pieces.size() == 1);
  CHECK(idle.pieces.size() == 2);
  Job::end(first);
  Job::end(second);
}

TEST_CASE("nonsense from a listener disturbs nobody", "[actors][errors]") {
  Job job(2);
  Heard good, lying, odd, other;
  const auto first = job.listen(good);
  lying.lies = true;
  const auto second = job.listen(lying);
  ListenRequest request;
  request.queue = -3;
  request.every_steps = -1;
  request.who = std::string(1000, '\x1b');
  const auto third = job.listen(odd, request);
  request.version = 99;
  const auto fourth = job.listen(other, request);
  CHECK_THAT(other.refusal, ContainsSubstring("version 99"));
  // Of a listener that is none, and of nodes that are none.
  caf::anon_send(job.hub, took_atom::value, 0, std::uint64_t{7});
  caf::anon_send(job.hub, SeenPiece{});
  caf::anon_send(job.hub, here_atom::value, 0);
  caf::anon_send(job.hub, SeenStep{});
  caf::anon_send(job.hub, here_atom::value, std::uint64_t{1}, std::int64_t{-9});
  caf::anon_send(job.presenters[0], listen_atom::value, std::uint64_t{1}, ListenRequest{});
  caf::anon_send(job.presenters[0], took_atom::value, std::uint64_t{77}, std::uint64_t{1});
  for (int step = 1; step <= 3; ++step) {
    for (std::size_t node : {0, 1}) job.compute(node, step, kLarge);
    for (std::size_t node : {0, 1}) job.decide(node, step);
    job.system.run();
  }
  CHECK(good.pieces.size() == 18);
  CHECK(good.steps.size() == 6);
  CHECK(odd.steps.size() == 6);
  CHECK(odd.pieces.size() == 18);
  job.system.pass(std::chrono::seconds(40));
  CHECK(lying.dismissals.empty());  // It has taken all there was.
  for (const auto& line : job.log) CHECK(line.find('\x1b') == std::string::npos);
  for (const auto& actor : {first, second, third, fourth}) Job::end(actor);
}

TEST_CASE("who asks for a module that the job has not is told which it has", "[actors][errors]") {
  Job job(1);
  Heard wrong, right;
  ListenRequest request;
  request.module = "vison";
  const auto first = job.listen(wrong, request);
  CHECK_THAT(wrong.refusal, ContainsSubstring("no module is called 'vison'"));
  CHECK_FALSE(job.listeners[0].begins(1));
  request.module = "llm";
  const auto second = job.listen(right, request);
  CHECK(right.welcome);
  for (const auto& actor : {first, second}) Job::end(actor);
}

TEST_CASE("a node that has no part in the layout any more says so behind what it showed",
          "[actors]") {
  Job job(1);
  Heard heard;
  const auto actor = job.listen(heard);
  job.compute(0, 3, 4);
  job.decide(0, 3);
  for (int i = 0; i < 2; ++i) job.listeners[0].rest();
  job.system.run();
  CHECK(heard.steps.size() == 1);
  CHECK(heard.here == std::vector<std::pair<std::int32_t, std::int64_t>>{{0, 1}, {0, 4}});
  Job::end(actor);
}

TEST_CASE("so many listen and no more", "[actors][errors]") {
  Job job(1);
  std::deque<Heard> heard(kListenersMax + 1);
  std::vector<ListenerActor> actors;
  for (Heard& one : heard) actors.push_back(job.listen(one));
  CHECK(heard[kListenersMax - 1].refusal.empty());
  CHECK_THAT(heard[kListenersMax].refusal, ContainsSubstring("8 look at this job already"));
  for (const auto& actor : actors) Job::end(actor);
}

TEST_CASE("an actor listens once", "[actors][errors]") {
  Job job(1);
  caf::scoped_actor self(job.system.get());
  std::vector<std::string> answers;
  for (int i = 0; i < 2; ++i) {
    auto asked = self->request(job.hub, caf::infinite, listen_atom::value, ListenRequest{});
    job.system.run();
    asked.receive([&](const ListenWelcome& welcome) { answers.push_back(welcome.job); },
                  [&](const caf::error& error) {
                    answers.push_back(error.context().get_as<std::string>(0));
                  });
  }
  CHECK(answers == std::vector<std::string>{"job", "it looks at this job already"});
}

TEST_CASE("nodes that come and go are told of, and what they left goes with them", "[actors]") {
  Job job(1);
  Heard heard;
  heard.hangs = true;
  const auto actor = job.listen(heard);
  auto& late = job.listeners.emplace_back();
  late.begins(8);
  job.presenters.push_back(job.system.get().spawn(presenter, &late));
  caf::anon_send(job.presenters.back(), here_atom::value,
                 caf::actor_cast<caf::strong_actor_ptr>(job.hub), 4);
  job.system.run();
  CHECK(heard.here == std::vector<std::pair<std::int32_t, std::int64_t>>{{0, 1}, {4, 9}});
  job.compute(0, 1, 4);
  job.system.run();
  Job::end(job.presenters[0]);
  job.system.run();
  CHECK(heard.gone == std::vector<std::int32_t>{0});
  job.system.pass(std::chrono::seconds(40));  // What it did not take is gone.
  CHECK(heard.dismissals.empty());
  Job::end(actor);
}

TEST_CASE("listeners hear of the job's end, and may hold it up no longer than they leave",
          "[actors]") {
  Job job(1);
  caf::scoped_actor self(job.system.get());
  Heard leaving, staying;
  const auto first = job.listen(leaving);
  staying.leaves = false;
  const auto second = job.listen(staying);
  int answers = 0;
  auto asked = self->request(job.hub, caf::infinite, over_atom::value, 75, std::string("stopped"));
  job.system.run();
  CHECK(leaving.ends == std::vector<std::int32_t>{75});
  CHECK(staying.ends == std::vector<std::int32_t>{75});
  Job::end(second);
  job.system.run();
  asked.receive([&](over_atom) { ++answers; }, [](const caf::error&) {});
  CHECK(answers == 1);
  Heard late;
  const auto third = job.listen(late);
  CHECK(late.refusal == "the job ends");
  Job::end(third);
}

TEST_CASE("a node that ends lets its listeners take what waits", "[actors]") {
  Job job(1);
  caf::scoped_actor self(job.system.get());
  Heard heard;
  const auto actor = job.listen(heard);
  for (int i = 0; i < 20; ++i) job.compute(0, 1, kLarge);
  auto asked = self->request(job.presenters[0], caf::infinite, over_atom::value);
  job.system.run();
  bool is_answered = false;
  asked.receive([&](over_atom) { is_answered = true; }, [](const caf::error&) {});
  CHECK(is_answered);
  CHECK(heard.pieces.size() == 60);
  Job::end(actor);
}

TEST_CASE("where the head is lost a node shows nothing until it obeys another one", "[actors]") {
  Job job(1);
  Heard heard, again;
  const auto first = job.listen(heard);
  Job::end(job.hub);
  job.system.run();
  job.compute(0, 1, 4);
  CHECK_FALSE(job.listeners[0].wants(2, "vision", Kind::rows));
  job.hub = job.system.get().spawn(observing_hub, "job", std::vector<std::string>{},
                                   [](const std::string&) {});
  caf::anon_send(job.presenters[0], here_atom::value,
                 caf::actor_cast<caf::strong_actor_ptr>(job.hub), 0);
  job.system.run();
  const auto second = job.listen(again);
  CHECK(again.here == std::vector<std::pair<std::int32_t, std::int64_t>>{{0, 2}});
  job.compute(0, 2, 4);
  job.system.run();
  CHECK(heard.pieces.empty());
  CHECK(again.pieces.size() == 1);
  Job::end(first);
  Job::end(second);
}

}  // namespace
}  // namespace troupe::actors
