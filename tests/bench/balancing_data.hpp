// The data that balancing is measured on: the generated distributions and real-mini.

#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "balancer/loads/workload.hpp"

namespace troupe::bench {

struct DataSet {
  std::string name;
  std::vector<std::vector<balancer::Workload>> batches;
};

/// Batches of `batch` samples: of every distribution as many as `seeds`, of real-mini those that
/// follow each other from the first sample on, all of them or `real_max` at most (0: all). Without
/// the data set, or enough samples in it, there is no real-mini. Its files are read once.
std::vector<DataSet> data_sets(std::size_t batch, std::size_t seeds, std::size_t real_max = 0);

}  // namespace troupe::bench
