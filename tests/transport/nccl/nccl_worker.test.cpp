// The thread that calls NCCL, and the watchdog's clock.

#include "transport/nccl/nccl_worker.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <future>
#include <string>
#include <thread>

#include "transport/nccl/nccl_timer.hpp"

namespace troupe::transport {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong{20000};

/// Runs everything that was posted before.
void drain(NcclWorker& worker) {
  std::promise<void> done;
  worker.post([&done] { done.set_value(); });
  REQUIRE(done.get_future().wait_for(kLong) == std::future_status::ready);
}

TEST_CASE("tasks run in their order, urgent ones before", "[transport]") {
  NcclWorker worker(kLong);
  std::promise<void> begun, go_on;
  std::string order;
  worker.post([&] {
    begun.set_value();
    go_on.get_future().wait();
  });
  begun.get_future().wait();
  worker.post([&order] { order += 'a'; });
  worker.post([&order] { order += 'b'; });
  worker.post_first([&order] { order += '!'; });
  go_on.set_value();
  drain(worker);
  CHECK(order == "!ab");
}

TEST_CASE("questions are asked until they are answered", "[transport]") {
  NcclWorker worker(kLong);
  std::promise<int> asked;
  worker.poll([&asked, count = 0]() mutable {
    if (++count < 5) return false;
    asked.set_value(count);
    return true;
  });
  auto answer = asked.get_future();
  REQUIRE(answer.wait_for(kLong) == std::future_status::ready);
  CHECK(answer.get() == 5);
}

TEST_CASE("a thread that is stuck is left behind, and what waits goes on", "[transport]") {
  NcclWorker worker(milliseconds(20));
  auto begun = std::make_shared<std::promise<void>>();
  auto release = std::make_shared<std::promise<void>>();
  auto ended = std::make_shared<std::promise<void>>();
  worker.post([=] {
    begun->set_value();
    release->get_future().wait();
    ended->set_value();
  });
  begun->get_future().wait();
  CHECK_FALSE(worker.is_stuck());  // It has only just begun.
  CHECK_FALSE(worker.replace_if_stuck());
  std::atomic<int> runs{0};
  worker.post([&runs] { ++runs; });
  std::this_thread::sleep_for(milliseconds(30));
  CHECK(runs == 0);
  CHECK(worker.is_stuck());
  CHECK(worker.replace_if_stuck());
  CHECK_FALSE(worker.is_stuck());
  drain(worker);
  CHECK(runs == 1);
  CHECK_FALSE(worker.replace_if_stuck());
  // The one that comes back does nothing any more.
  release->set_value();
  ended->get_future().wait();
  drain(worker);
  CHECK(runs == 1);
}

TEST_CASE("a worker that hangs does not keep its owner", "[transport]") {
  auto release = std::make_shared<std::promise<void>>();
  const auto begun = std::chrono::steady_clock::now();
  {
    NcclWorker worker(milliseconds(20));
    worker.post([=] { release->get_future().wait(); });
    std::this_thread::sleep_for(milliseconds(5));
  }
  CHECK(std::chrono::steady_clock::now() - begun < kLong);
  release->set_value();
}

TEST_CASE("the timer calls in the order of times and not what was dropped", "[transport]") {
  NcclTimer timer;
  auto order = std::make_shared<std::string>();
  auto done = std::make_shared<std::promise<void>>();
  const auto now = std::chrono::steady_clock::now();
  timer.at(now + milliseconds(40), [=] { done->set_value(); });
  timer.at(now + milliseconds(30), [=] { *order += 'b'; });
  const auto dropped = timer.at(now + milliseconds(20), [=] { *order += 'x'; });
  timer.at(now + milliseconds(10), [=] { *order += 'a'; });
  timer.drop(dropped);
  timer.drop(dropped);  // Once more: nothing.
  REQUIRE(done->get_future().wait_for(kLong) == std::future_status::ready);
  CHECK(*order == "ab");
}

TEST_CASE("a timer may end in one of its own calls", "[transport]") {
  auto timer = std::make_shared<NcclTimer>();
  std::promise<void> done;
  auto* const raw = timer.get();
  raw->at(std::chrono::steady_clock::now(), [timer = std::move(timer), &done]() mutable {
    timer.reset();
    done.set_value();
  });
  CHECK(done.get_future().wait_for(kLong) == std::future_status::ready);
}

}  // namespace
}  // namespace troupe::transport
