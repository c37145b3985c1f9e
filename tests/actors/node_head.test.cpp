// A node that loses its head. It opens its data and looks for a head on threads of their own, so
// these cases run on a real scheduler and wait.

#include "tests/torch_catch.hpp"

#include "actors/node/node_head.hpp"

#include <atomic>
#include <catch2/generators/catch_generators.hpp>
#include <csignal>
#include <thread>

#include "tests/actors/waiting_node.hpp"

namespace troupe::actors {
namespace {

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
  waiting.second_.holds = true;
  waiting.start_another();
  Waiting::wait_until([&] { return waiting.second_.hellos == 1; });
  // It says that it comes, and with which step that is.
  CHECK(waiting.second_.hello().holding.at(0).progress.step == 4);
  CHECK(waiting.second_.hello().holding.at(0).verdicts.back().note.step == 5);
  waiting.second_.holds = false;
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  CHECK(waiting.second_.alive == 0);
  waiting.finish(5);
  Waiting::wait_until([&] { return waiting.second_.alive > 0; });
  CHECK(waiting.second_.hello().holding.at(0).progress.step == 5);
  CHECK(waiting.second_.hello().holding.at(0).progress.tokens == 50);
}

// Window: the head is lost, and a node still finishes a decided step
TEST_CASE("a node that finishes a step says so to each head that it finds", "[actors][takeover]") {
  Waiting waiting(60);
  waiting.send_word(5);
  waiting.lose_head();
  waiting.start_another();
  Waiting::wait_until([&] { return waiting.second_.hellos > 0; });
  waiting.lose_another();
  const int said = waiting.second_.hellos;
  waiting.start_another();
  Waiting::wait_until([&] { return waiting.second_.hellos > said; });
  CHECK(waiting.second_.alive == 0);
  waiting.finish(5);
  Waiting::wait_until([&] { return waiting.second_.alive > 0; });
}

TEST_CASE("a node that finishes a step has nothing saved by another head than the one it found",
          "[actors][takeover]") {
  Waiting waiting(3, true);
  waiting.second_.refusal = Error{Errc::cancelled, "it has not finished step 5", "", ""};
  waiting.send_word(5);
  waiting.lose_head();
  waiting.start_another();
  Waiting::wait_until([&] { return waiting.second_.hellos > 0; });
  std::this_thread::sleep_for(std::chrono::milliseconds(3500));
  CHECK(waiting.saves == 0);
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
  Waiting waiting(0, true, true, 4, 60, GENERATE(false, true));
  waiting.lose_head();
  CHECK(waiting.how_it_ended().message == "node 2 ends: the connection to the supervisor was lost");
  CHECK(waiting.looks == 0);
}

TEST_CASE("a node without state that loses its head joins the next one anew",
          "[actors][takeover]") {
  // Also one that came from elsewhere in the place of one of the head's own.
  Waiting waiting(60, true, false, GENERATE(0, 4));
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

// Window: the head is lost while a layout turns over
TEST_CASE("a node that has fetched its first layout from others shows that to another head",
          "[actors][takeover]") {
  const bool is_from_others = GENERATE(true, false);
  Waiting waiting(60, false, false);
  Configuration layout;
  layout.epoch_number = 5;
  layout.progress.step = 4;
  layout.plan.devices = {{NodeId{2}, 0}};
  // To a device that is not there, so that nobody has to send anything.
  const DeviceSlot from = is_from_others ? DeviceSlot{NodeId{0}, 0} : DeviceSlot{};
  layout.moves.push_back({{ParameterId{0}, StateKind::value, {}}, from, {NodeId{2}, 1}});
  waiting.send_as_head(apply_atom::value, layout);
  Waiting::wait_until([&] { return waiting.first_.fetched == 1; });
  waiting.lose_head();
  waiting.start_another();
  if (!is_from_others) {  // It can be made again.
    CHECK(waiting.how_it_ended().again == 1);
    return;
  }
  Waiting::wait_until([&] { return waiting.second_.hellos == 1; });
  const NodeHolding holding = waiting.second_.hello().holding.at(0);
  CHECK(holding.epoch_number == 0);
  CHECK(holding.fetched_epoch == 5);
  CHECK(holding.newest_epoch == 5);
  CHECK(holding.progress.step == 4);
  // Its device ends with it.
  caf::anon_send(waiting.node_, stop_atom::value, std::string(), std::int32_t{0});
  CHECK(waiting.how_it_ended().exit_code == 0);
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
  Waiting waiting(60, true, false, 4, 60, true);
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

TEST_CASE("a node that waits for a head ends at a signal of who sits there, or saves nothing",
          "[actors][takeover]") {
  const std::int32_t signal = GENERATE(SIGTERM, SIGINT);
  Waiting waiting(60, signal == SIGINT);
  waiting.lose_head();
  Waiting::wait_until([&] { return waiting.looks > 0; });
  caf::anon_send(waiting.node_, stop_atom::value, signal);
  CHECK(waiting.how_it_ended().exit_code == 128 + signal);
  CHECK(waiting.saves == 0);
}

// Window: the head is lost, and SIGTERM asks a node to end, before that or behind it
TEST_CASE("a node that is told to end while no head is there has all state saved soon",
          "[actors][takeover]") {
  const bool is_before = GENERATE(false, true);
  Waiting waiting(60, true);
  const auto tell = [&] {
    caf::anon_send(waiting.node_, stop_atom::value, static_cast<std::int32_t>(SIGTERM));
  };
  if (is_before) tell();
  waiting.lose_head();
  Waiting::wait_until([&] { return waiting.looks > 0; });
  const auto begin = std::chrono::steady_clock::now();
  if (!is_before) tell();
  Waiting::wait_until([&] { return waiting.drains == 1; });  // It has the time that one has.
  CHECK(waiting.saves == 0);
  Waiting::wait_until([&] { return waiting.saves == 1; });
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30));
  waiting.start_another();  // That one.
  Waiting::wait_until([&] { return waiting.second_.hellos == 1; });
  const auto leaves = waiting.second_.hello().holding.at(0).leaves;
  REQUIRE(leaves.size() == 1);
  CHECK(leaves[0].by_signal);
}

TEST_CASE("a node that is told to end while its head is silent says so once it hears it again",
          "[actors][takeover]") {
  Waiting waiting(60, true, true, 4, 0.5);
  std::atomic<int> told = 0;
  waiting.first_.on_fault = [&told](const Error& why) { told += why.code == Errc::cancelled; };
  Waiting::wait_until([&] { return waiting.looks > 0; });
  caf::anon_send(waiting.node_, stop_atom::value, static_cast<std::int32_t>(SIGTERM));
  Waiting::wait_until([&] { return waiting.drains == 1; });
  CHECK(told == 0);
  waiting.send_as_head(alive_atom::value);
  Waiting::wait_until([&] { return told == 1; });
}

// Window: the head is lost, and SIGTERM asks a node to end, before that or behind it
TEST_CASE("a node that is told to end while another head takes it says so once it obeys that one",
          "[actors][takeover]") {
  Waiting waiting(60, true);
  std::atomic<int> told = 0;
  waiting.second_.on_fault = [&told](const Error& why) { told += why.code == Errc::cancelled; };
  waiting.second_.holds = true;
  waiting.lose_head();
  waiting.start_another();
  Waiting::wait_until([&] { return waiting.second_.hellos == 1; });
  caf::anon_send(waiting.node_, stop_atom::value, static_cast<std::int32_t>(SIGTERM));
  Waiting::wait_until([&] { return waiting.drains == 1; });
  CHECK(told == 0);
  waiting.second_.holds = false;
  Waiting::wait_until([&] { return told == 1; });
  CHECK(waiting.second_.hello().holding.at(0).leaves.empty());
}

}  // namespace
}  // namespace troupe::actors
