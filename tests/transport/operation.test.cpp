#include "transport/operation.hpp"

#include <catch2/catch_test_macros.hpp>
#include <thread>

namespace troupe::transport {
namespace {

const Error kError{Errc::transport_failed, "it broke", "", ""};

TEST_CASE("an operation completes once; later outcomes are ignored", "[transport]") {
  const auto completion = Completion::pending();
  const auto operation = completion.operation();
  CHECK_FALSE(operation.done());
  CHECK(completion.complete(Done{}));
  CHECK_FALSE(completion.complete(kError));
  CHECK(operation.done());
  CHECK(operation.wait(within(std::chrono::milliseconds(0))).ok());
}

TEST_CASE("callbacks run once, whether they come before or after the end", "[transport]") {
  const auto completion = Completion::pending();
  int before = 0, after = 0;
  completion.operation().on_done([&](const Status& status) { before += status.ok() ? 100 : 1; });
  completion.operation().on_done([&](const Status&) { ++before; });
  completion.complete(kError);
  completion.operation().on_done([&](const Status& status) {
    ++after;
    CHECK(status.error() == kError);
  });
  CHECK(before == 2);
  CHECK(after == 1);
}

TEST_CASE("a wait is woken by another thread", "[transport]") {
  const auto completion = Completion::pending();
  std::thread other([completion] { completion.complete(Done{}); });
  CHECK(completion.operation().wait(within(std::chrono::seconds(10))).ok());
  other.join();
}

TEST_CASE("a deadline that passes is timed_out and changes nothing", "[transport][errors]") {
  const auto completion = Completion::pending();
  const auto waited = completion.operation().wait(within(std::chrono::milliseconds(5)));
  REQUIRE_FALSE(waited.ok());
  CHECK(waited.error().code == Errc::timed_out);
  CHECK_FALSE(completion.operation().done());
}

TEST_CASE("cancelling asks the backend, until the operation has ended", "[transport]") {
  int asked = 0;
  const auto completion = Completion::pending([&](const Completion& which) {
    ++asked;
    which.complete(kError);
  });
  completion.operation().cancel();
  completion.operation().cancel();
  CHECK(asked == 1);
  Operation(Done{}).cancel();  // Complete from the start: there is nobody to ask.
}

TEST_CASE("a default completion stands for no operation", "[transport]") {
  CHECK_FALSE(Completion().complete(Done{}));
}

}  // namespace
}  // namespace troupe::transport
