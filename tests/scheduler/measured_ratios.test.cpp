#include "scheduler/cost/measured_ratios.hpp"
#include "scheduler/cost/device_catalog.hpp"
#include "scheduler/cost/layer_work.hpp"
#include "scheduler/cost/roofline.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "tests/scheduler/llama_modules.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Approx;

std::vector<LayerWork> works_of_llm() { return layer_works(testing::llm(4096, 14336, 32)); }

DeviceSpec h100() { return find_device("H100-80G").value(); }

/// One whose devices exchange in no time, so that all of a time is its own.
DeviceSpec without_collectives() {
  auto device = h100();
  device.link_gigabytes_per_s = 1e18;
  return device;
}

/// By what each time of a layer is longer than computed, at so many rows.
using Factor = std::function<double(double rows)>;
struct Factors {
  Factor forward, backward, attention;
};

void slow_down(ProfilePoint& point, double rows, const Factors& factors) {
  point.linear.forward_ms *= factors.forward(rows);
  point.linear.input_grad_ms *= factors.backward(rows);
  point.linear.weight_grad_ms *= factors.backward(rows);
  point.attention.forward_ms *= factors.attention(rows);
  point.attention.input_grad_ms *= factors.attention(rows);
}

/// As if it had been measured on one device, at every so many-th size.
std::vector<LayerProfile> measured(const DeviceSpec& device, const Factors& factors,
                                   std::size_t every = 1) {
  auto profiles = computed_profiles(works_of_llm(), device, {{1, 1}});
  for (auto& profile : profiles) {
    profile.origin = CostOrigin::measured;
    std::vector<ProfilePoint> points;
    for (std::size_t p = 0; p < profile.points.size(); p += every) {
      points.push_back(profile.points[p]);
      slow_down(points.back(), static_cast<double>(points.back().tokens), factors);
    }
    profile.points = std::move(points);
  }
  return profiles;
}

/// Largest relative error of the corrected times of points with at least 64 rows on each device.
double worst_error(const std::vector<LayerWork>& works, const std::vector<Parallelism>& degrees,
                   const Factors& factors, const std::vector<LayerProfile>& seen) {
  const auto device = without_collectives();
  auto truth = computed_profiles(works, device, degrees);
  const auto corrected = computed_profiles(works, device, degrees, {}, seen);
  double worst = 0;
  for (std::size_t i = 0; i < truth.size(); ++i)
    for (std::size_t p = 0; p < truth[i].points.size(); ++p) {
      auto& wanted = truth[i].points[p];
      const auto& made = corrected[i].points[p];
      const double rows = static_cast<double>(wanted.tokens) / truth[i].parallelism.cp;
      if (rows < 64) continue;
      slow_down(wanted, rows, factors);
      for (auto part : {&ProfilePoint::linear, &ProfilePoint::attention}) {
        CHECK((made.*part).activation_bytes == (wanted.*part).activation_bytes);
        for (auto time :
             {&PartCost::forward_ms, &PartCost::input_grad_ms, &PartCost::weight_grad_ms})
          if ((wanted.*part).*time > 0)
            worst = std::max(worst, std::abs((made.*part).*time / ((wanted.*part).*time) - 1));
      }
    }
  return worst;
}

TEST_CASE("a device that takes a factor longer is recovered at every size and degree",
          "[scheduler]") {
  const Factors factors{[](double) { return 1.4; }, [](double) { return 1.25; },
                        [](double) { return 1.7; }};
  const auto seen = measured(without_collectives(), factors);
  CHECK(worst_error(works_of_llm(), {{1, 1}, {2, 1}, {1, 2}}, factors, seen) < 1e-9);
}

TEST_CASE("a factor that falls with size is recovered between measured sizes", "[scheduler]") {
  // Measured at 64, 256, ... 16384; 2.33 times as long at 64 rows, 1.05 at 16384. Halfway between
  // 256 (2) and 1024 (1.5), on a logarithmic scale, lie 512, where it is 1.75: the root of 2 x 1.5
  // is 1.732, which is 1 % less.
  const Factor falling = [](double rows) { return 1 + 1.5 * 512 / (512 + rows); };
  const Factors factors{falling, falling, falling};
  const auto seen = measured(without_collectives(), factors, 2);
  CHECK(worst_error({works_of_llm()[1]}, {{1, 1}, {1, 2}}, factors, seen) < 0.03);
}

TEST_CASE("what was not measured is computed, to the bit", "[scheduler]") {
  const std::vector<Parallelism> degrees{{1, 1}, {2, 1}, {1, 2}, {4, 2}};
  const auto computed = computed_profiles(works_of_llm(), h100(), degrees);
  const Factors twice{[](double) { return 2.0; }, [](double) { return 2.0; },
                      [](double) { return 2.0; }};
  auto seen = measured(h100(), twice);
  for (auto& profile : seen) profile.kind = "another." + profile.kind;
  CHECK((computed_profiles(works_of_llm(), h100(), degrees, {}, seen) == computed));
  seen = measured(h100(), twice);
  for (auto& profile : seen) profile.origin = CostOrigin::modelled;
  CHECK((computed_profiles(works_of_llm(), h100(), degrees, {}, seen) == computed));
  seen = measured(h100(), twice);
  for (auto& profile : seen) profile.parallelism = {2, 1};
  CHECK((computed_profiles(works_of_llm(), h100(), degrees, {}, seen) == computed));
  for (const auto& kind : kind_corrections(computed, computed)) CHECK_FALSE(kind.factor);
}

TEST_CASE("each kind says by what it was corrected", "[scheduler]") {
  const Factors twice{[](double) { return 2.0; }, [](double) { return 2.0; },
                      [](double) { return 2.0; }};
  auto seen = measured(h100(), twice);
  seen.pop_back();
  const std::vector<Parallelism> degrees{{2, 1}, {1, 1}};
  const auto kinds = kind_corrections(computed_profiles(works_of_llm(), h100(), degrees),
                                      computed_profiles(works_of_llm(), h100(), degrees, {}, seen));
  REQUIRE(kinds.size() == 3);
  CHECK(kinds[0].kind == "llm.embed");
  CHECK(kinds[1].kind == "llm.block");
  CHECK(kinds[1].factor.value() == Approx(2));
  CHECK(kinds[2].kind == "llm.head");
  CHECK_FALSE(kinds[2].factor);
}

TEST_CASE("what passes between devices is no part of a correction", "[scheduler]") {
  const Factors twice{[](double) { return 2.0; }, [](double) { return 2.0; },
                      [](double) { return 2.0; }};
  const auto computed = computed_profiles({works_of_llm()[1]}, h100(), {{2, 1}});
  const auto corrected =
      computed_profiles({works_of_llm()[1]}, h100(), {{2, 1}}, {}, measured(h100(), twice));
  const auto &before = computed[0].points.back().linear, &now = corrected[0].points.back().linear;
  // Two all-reduces of 16384 x 4096 values of 2 bytes: 268 MB each way at 315 GB/s.
  const double between = 2.0 * 2 * 16384 * 4096 * 2 * 0.5 / (450 * 0.7 * 1e6);
  CHECK(now.forward_ms == Approx(between + 2 * (before.forward_ms - between)));
  CHECK(now.input_grad_ms == Approx(between + 2 * (before.input_grad_ms - between)));
  CHECK(now.weight_grad_ms == Approx(2 * before.weight_grad_ms));
}

TEST_CASE("logits in chunks are corrected by logits in chunks", "[scheduler]") {
  // One device cuts 512 rows into two chunks, each of two devices has them in one.
  const auto device = without_collectives();
  const Factor cut = [](double rows) { return rows > 256 ? 3.0 : 1.5; };
  auto seen = measured(device, {cut, cut, cut});
  const auto head = works_of_llm().back();
  const auto computed = computed_profiles({head}, device, {{1, 1}, {2, 1}});
  const auto corrected = computed_profiles({head}, device, {{1, 1}, {2, 1}}, {}, seen);
  for (std::size_t p = 0; p < computed[0].points.size(); ++p) {
    if (computed[0].points[p].tokens != 512) continue;
    for (const auto& [degrees, factor] : {std::pair{0, 3.0}, std::pair{1, 1.5}}) {
      const auto i = static_cast<std::size_t>(degrees);
      CHECK(corrected[i].points[p].linear.forward_ms ==
            Approx(factor * computed[i].points[p].linear.forward_ms));
    }
  }
}

TEST_CASE("a ratio is interpolated by logarithms, and kept outside of what was measured",
          "[scheduler]") {
  const TimeRatio ratio({{1024, 8, 1}, {64, 2, 1}}, 0);
  CHECK(ratio.corrected_ms(1, 64) == Approx(2));
  CHECK(ratio.corrected_ms(1, 256) == Approx(4));  // Halfway: the root of 2 x 8.
  CHECK(ratio.corrected_ms(1, 1024) == Approx(8));
  CHECK(ratio.corrected_ms(1, 16) == Approx(2));
  CHECK(ratio.corrected_ms(3, 16384) == Approx(24));
}

TEST_CASE("a ratio that no device can have is cut", "[scheduler]") {
  CHECK(TimeRatio({{64, 100, 1}}, 0).corrected_ms(20, 64) == Approx(320));
  CHECK(TimeRatio({{64, 0.01, 1}}, 0).corrected_ms(20, 64) == Approx(1.25));
}

TEST_CASE("no pass takes less than launching it does", "[scheduler]") {
  // 0.3 ms at 64 rows, of whose computed 0.06 ms work is 0.01: launches take 0.29. A shard with
  // 0.001 ms of work has as many; the ratio alone, 5, would say 0.255.
  CHECK(TimeRatio({{64, 0.3, 0.06}}, 0.05).corrected_ms(0.051, 64) == Approx(0.29));
  // Launches that are faster than assumed: a third of the computed time, but no less than seen.
  CHECK(TimeRatio({{64, 0.02, 0.06}}, 0.05).corrected_ms(0.051, 64) == Approx(0.02));
  // Attention is computed without launches: what its shortest sequence takes is nothing else.
  CHECK(TimeRatio({{64, 0.02, 0.00125}}, 0).corrected_ms(0.0001, 64) == Approx(0.01875));
}

TEST_CASE("what a device does not do takes no time", "[scheduler]") {
  CHECK(TimeRatio({{64, 0, 1}, {128, 0, 2}}, 0.05).corrected_ms(1, 64) == 0);
  CHECK_FALSE(TimeRatio({{64, 1, 0}}, 0).is_known());
  // Too short to be told at one size.
  CHECK(TimeRatio({{64, 0, 1}, {128, 4, 2}}, 0.05).corrected_ms(1, 64) == Approx(2.05));
}

}  // namespace
}  // namespace troupe::scheduler
