#include "tests/bench/balancing_data.hpp"

#include <utility>

#include "balancer/loads/distributions.hpp"
#include "tests/bench/real_mini_lengths.hpp"

namespace troupe::bench {

std::vector<DataSet> data_sets(std::size_t batch, std::size_t seeds, std::size_t real_max) {
  std::vector<DataSet> sets;
  for (const auto distribution : balancer::distributions()) {
    DataSet set{std::string(to_string(distribution)), {}};
    for (std::size_t seed = 0; seed < seeds; ++seed)
      set.batches.push_back(generate_workloads(distribution, batch, seed));
    sets.push_back(std::move(set));
  }
  static const auto lengths = real_mini_lengths("../shared/data/real-mini");
  DataSet real{"real-mini", {}};
  for (std::size_t begin = 0; begin + batch <= lengths.size(); begin += batch) {
    if (real_max > 0 && real.batches.size() == real_max) break;
    auto& samples = real.batches.emplace_back();
    for (std::size_t i = begin; i < begin + batch; ++i) samples.push_back(workload_of(lengths[i]));
  }
  if (!real.batches.empty()) sets.push_back(std::move(real));
  return sets;
}

}  // namespace troupe::bench
