// Random pipelines of stage times for the property tests of schedules.

#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "scheduler/cost/stage_times.hpp"
#include "tests/scheduler/example_models.hpp"

namespace troupe::scheduler::testing {

/// Two encoders on devices of their own or shared with the llm, random times, sometimes deferral:
/// part 1 of an encoder microbatch is needed by the next llm microbatch.
inline PipelineTimes random_times(std::uint32_t seed, int most_stages = 3,
                                  int most_microbatches = 6) {
  std::mt19937 random(seed);
  PipelineTimes times;
  times.microbatches = draw(random, 1, most_microbatches);
  times.link_ms = draw(random, 0, 2) * 0.5;
  const int encoders = draw(random, 0, most_stages - 1);
  const int llm = draw(random, 1, most_stages);
  const bool shared = draw(random, 0, 1) == 1;
  const bool defer = encoders > 0 && draw(random, 0, 1) == 1;
  for (int s = 0; s < encoders + llm; ++s) {
    const bool encoder = s < encoders;
    StageTimes stage;
    stage.name = (encoder ? "vision." : "llm.") + std::to_string(encoder ? s : s - encoders);
    stage.device = encoder || !shared ? s : (s - encoders) % std::max(encoders, 1);
    stage.encoder = encoder;
    if (s + 1 < encoders + llm) stage.next = {s + 1};
    for (int m = 0; m < times.microbatches; ++m) {
      stage.forward_ms.push_back(draw(random, 0, 9));
      stage.input_grad_ms.push_back(draw(random, 0, 9));
      stage.weight_grad_ms.push_back(draw(random, 0, 9));
      if (encoder && defer)
        stage.parts.push_back(m + 1 < times.microbatches ? std::vector<double>{0.75, 0.25}
                                                         : std::vector<double>{1});
    }
    times.stages.push_back(stage);
  }
  if (defer) {
    auto& needs = times.stages[static_cast<std::size_t>(encoders)].needs.emplace();
    for (int m = 0; m < times.microbatches; ++m) {
      needs.push_back({{encoders - 1, m, 0}});
      if (m > 0) needs.back().push_back({encoders - 1, m - 1, 1});
    }
  }
  // Devices in use count from 0 without gaps.
  std::vector<int> used;
  for (const auto& stage : times.stages) used.push_back(stage.device);
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  for (auto& stage : times.stages)
    stage.device =
        static_cast<int>(std::find(used.begin(), used.end(), stage.device) - used.begin());
  return times;
}

}  // namespace troupe::scheduler::testing
