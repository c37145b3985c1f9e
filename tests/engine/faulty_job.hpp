// A job whose projector does wrong what a word says, and what a check finds of a job.

#pragma once

#include "tests/torch_catch.hpp"

#include <string>
#include <utility>
#include <vector>

#include "engine/contract/contract.hpp"
#include "tests/engine/faulty_family.hpp"
#include "tests/engine/faulty_stage.hpp"
#include "tests/engine/tiny_job.hpp"

namespace troupe::engine {

/// A stage for every layer.
inline ContractOptions by_layer() {
  ContractOptions options;
  options.bench.is_by_layer = true;
  return options;
}

/// REQUIRES: the job can be checked.
inline std::vector<StageVerdict> check(const job::Job& job, const ContractOptions& options) {
  auto verdicts = check_contract(job, options);
  REQUIRE(verdicts.ok());
  return std::move(verdicts).value();
}

/// The tiny job with a fault in its projector's layer.
inline job::Job faulty_job(const std::string& fault) {
  register_faulty_family();
  register_faulty_stage();
  job::Job job = tiny_job();
  job.modules[1].family = "faulty";
  job.modules[1].config = FaultyConfig{fault};
  return job;
}

}  // namespace troupe::engine
