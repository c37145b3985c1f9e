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

/// The job with a fault in the layer of its projector, which is its second module.
inline job::Job faulty_job(const std::string& fault, job::Job job = tiny_job()) {
  register_faulty_family();
  register_faulty_stage();
  job.modules[1].family = "faulty";
  job.modules[1].config = FaultyConfig{fault};
  return job;
}

/// What is found of its projector.
inline StageVerdict verdict_on(const std::string& fault, job::Job job = tiny_job()) {
  ContractOptions options = by_layer();
  options.module = "projector";
  auto verdicts = check(faulty_job(fault, std::move(job)), options);
  REQUIRE(verdicts.size() == 1);
  CHECK(verdicts.front().stage_kind == "around-faulty");
  return std::move(verdicts.front());
}

/// The same with a fault of the stage around the layer.
inline StageVerdict verdict_on_stage(const std::string& fault, job::Job job = tiny_job()) {
  stage_fault() = fault;
  StageVerdict verdict = verdict_on("none", std::move(job));
  stage_fault().clear();
  first_place().reset();
  return verdict;
}

/// What is said of the first promise that a fault of the stage breaks.
inline Breach first_breach(const std::string& fault) {
  StageVerdict verdict = verdict_on_stage(fault);
  REQUIRE_FALSE(verdict.breaches.empty());
  return std::move(verdict.breaches.front());
}

/// The promises that are broken, each once, in order.
inline std::string broken_in(const StageVerdict& verdict) {
  std::string list, last;
  for (const Breach& breach : verdict.breaches) {
    UNSCOPED_INFO(breach.promise << ": " << breach.found);
    if (breach.promise != last) list += (list.empty() ? "" : ", ") + breach.promise;
    last = breach.promise;
  }
  return list;
}

/// Of what is found with a fault of the layer, and of the stage around it.
inline std::string broken_by(const std::string& fault) { return broken_in(verdict_on(fault)); }
inline std::string broken_by_stage(const std::string& fault) {
  return broken_in(verdict_on_stage(fault));
}

}  // namespace troupe::engine
