#include "actors/node/read_watch.hpp"

#include <catch2/catch_test_macros.hpp>

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

constexpr Time kStart{1h};
const std::optional<files::FileRead> kFirst = files::FileRead{1, "/far/a.png"};
const std::optional<files::FileRead> kSecond = files::FileRead{2, "/far/b.png"};

/// Looks every 200 ms from `from` until before `to`; true where all was well.
bool fine(ReadWatch& watch, Duration from, Duration to,
          const std::optional<files::FileRead>& read) {
  for (Duration at = from; at < to; at += 200ms)
    if (!watch.pass(kStart + at, 3, read).ok()) return false;
  return true;
}

TEST_CASE("a file that is read for too long is named", "[actors][errors]") {
  ReadWatch watch;
  CHECK(fine(watch, 0s, 1s, std::nullopt));
  CHECK(fine(watch, 1s, 4s, kFirst));
  CHECK(watch.pass(kStart + 4s, 3, kFirst).ok());  // Three seconds, not more.
  const auto over = watch.pass(kStart + 4200ms, 3, kFirst);
  REQUIRE_FALSE(over.ok());
  CHECK(over.error().code == Errc::timed_out);
  CHECK(over.error().message ==
        "/far/a.png could not be read within 3 s: its file system does not answer");
  CHECK(over.error().where == "data.read_timeout_s");
  CHECK(over.error().fix.find("raise data.read_timeout_s") != std::string::npos);
}

TEST_CASE("a file that is written for too long is told so", "[actors][errors]") {
  const auto page = std::optional(files::FileRead{1, "/far/page.html", files::FileUse::write});
  ReadWatch watch;
  CHECK(fine(watch, 0s, 3s, page));
  const auto over = watch.pass(kStart + 3200ms, 3, page);
  REQUIRE_FALSE(over.ok());
  CHECK(over.error().message.find("could not be written within 3 s") != std::string::npos);
}

TEST_CASE("reads that end leave the next ones their time", "[actors]") {
  ReadWatch watch;
  CHECK(fine(watch, 0s, 2800ms, kFirst));
  CHECK(fine(watch, 2800ms, 5600ms, kSecond));
  CHECK(fine(watch, 5600ms, 60s, std::nullopt));
  CHECK(fine(watch, 60s, 62800ms, kFirst));
}

TEST_CASE("time in which the watcher was held up does not count", "[actors]") {
  ReadWatch watch;
  CHECK(watch.pass(kStart, 3, kFirst).ok());
  CHECK(watch.pass(kStart + 1h, 3, kFirst).ok());
}

}  // namespace
}  // namespace troupe::actors
