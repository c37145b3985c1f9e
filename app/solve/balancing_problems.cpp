// The balancing problems of `troupe solve`: JSON in and out around the functions of `balancer/`.

#include "app/solve/balancing_problems.hpp"

namespace troupe::app {

std::vector<Problem> balancing_problems() {
  std::vector<Problem> all;
  for (auto* list : {microbatch_problems, rank_problems, token_problems})
    for (auto& problem : list()) all.push_back(std::move(problem));
  return all;
}

std::vector<balancer::Workload> read_workloads(Reader& in) {
  std::vector<balancer::Workload> workloads;
  const std::size_t count = in.array("samples").size();
  workloads.reserve(count);
  for (std::size_t i = 0; i < count && in.ok(); ++i) {
    Reader sample = in.element("samples", i);
    const double encoder_ms = sample.number("encoder_ms", 0, kTimeMax);
    workloads.push_back({encoder_ms, sample.number("llm_ms", 0, kTimeMax)});
    in.absorb(sample);
  }
  return workloads;
}

std::vector<std::vector<std::int64_t>> read_rows(Reader& in, const std::string& key,
                                                 std::int64_t minimum, std::int64_t maximum) {
  std::vector<std::vector<std::int64_t>> rows;
  const Json& outer = in.array(key);
  for (std::size_t r = 0; r < outer.size() && in.ok(); ++r) {
    const std::string name = key + "[" + std::to_string(r) + "]";
    if (!outer[r].is_array()) {
      in.fail(name, "expected an array of integers");
      break;
    }
    rows.emplace_back();
    for (std::size_t i = 0; i < outer[r].size() && in.ok(); ++i) {
      const Json& value = outer[r][i];
      if (value.is_number_integer() &&
          !(value.is_number_unsigned() &&
            value.get<std::uint64_t>() > static_cast<std::uint64_t>(maximum)) &&
          value.get<std::int64_t>() >= minimum && value.get<std::int64_t>() <= maximum) {
        rows.back().push_back(value.get<std::int64_t>());
      } else {
        in.fail(name + "[" + std::to_string(i) + "]",
                "expected an integer in [" + std::to_string(minimum) + ", " +
                    std::to_string(maximum) + "], found " + value.dump());
      }
    }
  }
  return rows;
}

}  // namespace troupe::app
