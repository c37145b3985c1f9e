#include "transport/ucx/event_loop.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <ctime>
#include <future>

namespace troupe::transport {
namespace {

/// Has events for ever, of which nothing comes: as UCX while a peer takes nothing.
struct Stuck : EventLoop::Client {
  bool progress() override { return false; }
  bool expects_more() const override { return false; }
  bool arm() override { return false; }
  bool tick() override {
    ++ticks;
    return true;
  }
  std::atomic<int> ticks{0};
};

double processor_ms() { return 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

TEST_CASE("a loop that cannot sleep rests, and hears commands and ticks", "[transport]") {
  Stuck client;
  const int events = eventfd(0, EFD_NONBLOCK);
  EventLoop loop(client, events, std::chrono::microseconds(50));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const double before = processor_ms();
  for (int i = 0; i < 30; ++i) {
    std::promise<void> ran;
    REQUIRE(loop.post([&] { ran.set_value(); }));
    REQUIRE(ran.get_future().wait_for(std::chrono::seconds(20)) == std::future_status::ready);
    std::this_thread::sleep_for(std::chrono::milliseconds(40));
  }
  // 1200 ms at least have passed, of which a loop without rests takes all.
  CHECK(processor_ms() - before < 600);
  CHECK(client.ticks > 0);
  loop.stop([] {});
  close(events);
}

}  // namespace
}  // namespace troupe::transport
