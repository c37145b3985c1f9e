#include "tests/torch_catch.hpp"

#include "engine/state/state_saver.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include <atomic>
#include <catch2/generators/catch_generators.hpp>
#include <chrono>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <thread>

#include "runtime/state/file_digest.hpp"
#include "runtime/state/safetensors.hpp"
#include "tests/support/scratch_folder.hpp"

namespace troupe::engine {
namespace {

/// Waits for a minute at most.
bool until(const std::function<bool()>& done) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (std::chrono::steady_clock::now() < deadline) {
    if (done()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

TEST_CASE("what is written is the state at the start, whatever follows the copy", "[engine]") {
  const testing::ScratchFolder scratch;
  std::atomic<int> woken = 0;
  StateSaver saver([&] { ++woken; });
  CHECK(saver.may_change());
  CHECK_FALSE(saver.busy());
  // Large enough that writing takes longer than copying.
  at::Tensor weight = at::full({1000, 1000}, 3.0), bias = at::arange(4, at::kDouble);
  saver.start(9, scratch / "new" / "state-0.0.safetensors", {{"w", weight}, {"b@moments", bias}});
  CHECK(saver.busy());
  REQUIRE(until([&] { return saver.may_change(); }));
  weight.fill_(4);
  bias.fill_(-1);
  std::optional<SavedShare> share;
  REQUIRE(until([&] { return (share = saver.take()).has_value(); }));
  CHECK_FALSE(saver.busy());
  CHECK_FALSE(saver.take());
  CHECK(woken == 2);
  REQUIRE(share->status.ok());
  CHECK(share->number == 9);
  CHECK(share->file.name == "state-0.0.safetensors");
  const auto path = scratch / "new" / "state-0.0.safetensors";
  CHECK(share->file.bytes == static_cast<std::int64_t>(std::filesystem::file_size(path)));
  CHECK(share->file.sha256 == state::sha256_of_file(path).value());
  const auto read = state::read_safetensors(path).value();
  CHECK(at::equal(read.at("w"), at::full({1000, 1000}, 3.0)));
  CHECK(at::equal(read.at("b@moments"), at::arange(4, at::kDouble)));
}

TEST_CASE("a last save copies nothing, and holds the state until it is written", "[engine]") {
  const testing::ScratchFolder scratch;
  StateSaver saver([] {});
  at::Tensor weight = at::full({3000, 1000}, 3.0);
  saver.start(1, scratch / "state.safetensors", {{"w", weight}}, false);
  CHECK_FALSE(saver.may_change());
  std::optional<SavedShare> share;
  REQUIRE(until([&] { return saver.may_change(); }));
  weight.fill_(4);  // It is on disk.
  REQUIRE(until([&] { return (share = saver.take()).has_value(); }));
  REQUIRE(share->status.ok());
  const auto read = state::read_safetensors(scratch / "state.safetensors").value();
  CHECK(at::equal(read.at("w"), at::full({3000, 1000}, 3.0)));
}

TEST_CASE("of a state that is checked nothing is written where a number is not finite",
          "[engine][errors]") {
  const testing::ScratchFolder scratch;
  StateSaver saver([] {});
  at::Tensor weight = at::full({3000, 1000}, 3.4e38, at::kFloat);  // Its sum is none of fp32.
  const bool is_bad = GENERATE(false, true);
  if (is_bad)
    weight[2999][999] =
        GENERATE(std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity());
  const auto path = scratch / "state.safetensors";
  saver.start(1, path, {{"b", at::arange(3)}, {"w", weight.t()}}, false, true);
  std::optional<SavedShare> share;
  REQUIRE(until([&] { return (share = saver.take()).has_value(); }));
  CHECK(share->status.ok() != is_bad);
  CHECK(std::filesystem::exists(path) != is_bad);
  if (is_bad) CHECK(share->status.error().message.starts_with("'w' is not finite"));
}

TEST_CASE("a share that cannot be written says why, and the state may change", "[engine][errors]") {
  const testing::ScratchFolder scratch;
  std::ofstream(scratch / "file") << "in the way";
  StateSaver saver([] {});
  saver.start(1, scratch / "file" / "state.safetensors", {{"w", at::arange(3)}});
  std::optional<SavedShare> share;
  REQUIRE(until([&] { return (share = saver.take()).has_value(); }));
  CHECK(saver.may_change());
  REQUIRE_FALSE(share->status.ok());
  CHECK(share->status.error().code == Errc::io_failed);
}

}  // namespace
}  // namespace troupe::engine
