#include "engine/iteration/pipeline_speeds.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <random>
#include <set>

namespace troupe::engine {
namespace {

using balancer::Workload;

std::vector<Workload> equal_samples(std::size_t count) {
  return std::vector<Workload>(count, Workload{1, 1});
}

/// Samples per pipeline.
std::vector<std::size_t> counts(const std::string& rule, const PipelineSpeeds& speeds,
                                std::size_t samples) {
  std::vector<std::size_t> sizes;
  const auto dealt = deal_samples(rule, equal_samples(samples), speeds.ms_per_work()).value();
  for (const auto& own : dealt) sizes.push_back(own.size());
  return sizes;
}

using Counts = std::vector<std::size_t>;

TEST_CASE("nothing known deals evenly; by count longer runs come first", "[engine]") {
  const PipelineSpeeds speeds(3);
  CHECK((counts("count", speeds, 8) == Counts{3, 3, 2}));
  CHECK((counts("count", speeds, 2) == Counts{1, 1, 0}));
  CHECK((counts("work", speeds, 9) == Counts{3, 3, 3}));
  const auto runs = deal_samples("count", equal_samples(5), {1, 1}).value();
  CHECK((runs == balancer::SampleGroups{{0, 1, 2}, {3, 4}}));
}

TEST_CASE("a pipeline of half the speed gets half the samples", "[engine]") {
  PipelineSpeeds speeds(2);
  // Pipeline 0 does 2 units of work per ms, pipeline 1 one: 8 x 0.5 = 4 x 1.
  speeds.note({{12, 6}, {12, 12}});
  CHECK((counts("count", speeds, 12) == Counts{8, 4}));
  CHECK((counts("work", speeds, 12) == Counts{8, 4}));
}

TEST_CASE("later batches weigh more", "[engine]") {
  PipelineSpeeds speeds(2);
  speeds.note({{12, 6}, {12, 12}});
  speeds.note({{12, 60}, {12, 12}});
  // Sums, the older batch at 0.9: pipeline 0 has 22.8 in 65.4, pipeline 1 22.8 in 22.8, and
  // 3 x 65.4/22.8 = 8.6 is nearest to 9 x 1.
  CHECK((counts("count", speeds, 12) == Counts{3, 9}));
}

TEST_CASE("a pipeline that slows down after a long time is seen within twenty batches",
          "[engine]") {
  PipelineSpeeds speeds(2);
  for (int batch = 0; batch < 1000; ++batch) speeds.note({{12, 12}, {12, 12}});
  CHECK((counts("count", speeds, 12) == Counts{6, 6}));
  for (int batch = 0; batch < 20; ++batch) speeds.note({{12, 12}, {12, 36}});
  CHECK((counts("count", speeds, 12) == Counts{9, 3}));
}

TEST_CASE("a job that goes on deals as it would have, from what it has saved", "[engine]") {
  PipelineSpeeds whole(2), resumed(2);
  for (int batch = 0; batch < 6; ++batch) whole.note({{12, 6.0 + batch}, {12, 12}});
  resumed.restore({{4, {{1, 1}, {1, 9}}}, {5, whole.known()}});
  for (int batch = 6; batch < 12; ++batch) {
    CHECK(resumed.ms_per_work() == whole.ms_per_work());
    for (PipelineSpeeds* speeds : {&whole, &resumed}) speeds->note({{9, 3}, {9, 8}});
  }
  PipelineSpeeds other(3);  // Shares of other pipelines say nothing.
  other.restore({{5, whole.known()}});
  CHECK((other.ms_per_work() == std::vector<double>{1, 1, 1}));
  CHECK(other.known().empty());
}

TEST_CASE("however slow a pipeline is, it gets a sample to be measured by", "[engine]") {
  auto samples = equal_samples(6);
  samples[4] = {0.5, 0.5};
  for (const std::string rule : {"work", "count"}) {
    const auto dealt = deal_samples(rule, samples, {1, 1e6, 1e6}).value();
    CHECK((dealt[1].size() == 1 && dealt[2].size() == 1));
    if (rule == "work") CHECK((dealt[1].front() == 4 || dealt[2].front() == 4));
    const auto few = deal_samples(rule, equal_samples(2), {1, 1, 1}).value();
    CHECK(few[0].size() + few[1].size() + few[2].size() == 2);
  }
}

TEST_CASE("a batch that leaves a pipeline idle teaches nothing", "[engine]") {
  PipelineSpeeds speeds(2);
  speeds.note({{12, 6}, {0, 0}});
  CHECK((speeds.ms_per_work() == std::vector<double>{1, 1}));
}

TEST_CASE("one giant sample leaves its pipeline little else; by count it does not", "[engine]") {
  auto samples = equal_samples(8);
  samples[2] = {5, 7};
  const auto by_work = deal_samples("work", samples, {1, 1}).value();
  const auto giant = std::find_if(by_work.begin(), by_work.end(), [](const auto& own) {
    return std::find(own.begin(), own.end(), 2) != own.end();
  });
  CHECK(giant->size() == 1);
  CHECK((deal_samples("count", samples, {1, 1}).value() ==
         balancer::SampleGroups{{0, 1, 2, 3}, {4, 5, 6, 7}}));
}

TEST_CASE("every sample is dealt once, by work within one sample of even", "[engine][property]") {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    const std::size_t pipelines = 1 + random() % 5, size = random() % 60;
    std::vector<Workload> samples;
    for (std::size_t i = 0; i < size; ++i)
      samples.push_back({static_cast<double>(random() % 100), 1.0 + double(random() % 100)});
    const std::vector<double> alike(pipelines, 2.5);
    for (const std::string rule : {"work", "count"}) {
      const auto dealt = deal_samples(rule, samples, alike).value();
      REQUIRE(dealt.size() == pipelines);
      std::multiset<std::int32_t> seen;
      Workload sum, most, largest;
      for (const auto& own : dealt) {
        CHECK(std::is_sorted(own.begin(), own.end()));
        seen.insert(own.begin(), own.end());
        Workload load;
        for (const auto s : own) load += samples[static_cast<std::size_t>(s)];
        sum += load;
        most.llm_ms = std::max(most.llm_ms, load.llm_ms);
        most.encoder_ms = std::max(most.encoder_ms, load.encoder_ms);
      }
      REQUIRE(seen.size() == size);
      for (std::size_t i = 0; i < size; ++i) CHECK(seen.count(static_cast<std::int32_t>(i)) == 1);
      if (rule == "count") continue;
      for (const auto& sample : samples)
        largest = {std::max(largest.encoder_ms, sample.encoder_ms),
                   std::max(largest.llm_ms, sample.llm_ms)};
      // The search never leaves the rule's bound on the larger of the two workloads.
      const double share = 1.0 / static_cast<double>(pipelines);
      CHECK(std::min(most.llm_ms - share * sum.llm_ms - largest.llm_ms,
                     most.encoder_ms - share * sum.encoder_ms - largest.encoder_ms) <= 1e-9);
    }
  }
}

}  // namespace
}  // namespace troupe::engine
