#include "engine/contract/contract.hpp"

#include <chrono>

#include "engine/contract/stage_check.hpp"
#include "runtime/observe/plan_words.hpp"

namespace troupe::engine {

namespace {

std::string mebibytes(Bytes bytes) { return std::to_string(bytes.count() >> 20) + " MiB"; }

/// Why a stage cannot be tried; empty: it can.
std::string reason_against(const StageBench& bench, StageId id, const ContractOptions& options) {
  if (traffic_of(bench.plan(), bench.iteration(), id).parts.empty())
    return "none of the samples has anything for it: take others, or made ones";
  const Bytes needed = bench.memory_for(id);
  if (options.memory == Bytes{} || needed <= options.memory) return {};
  return "it needs about " + mebibytes(needed) + " in fp64, and " + mebibytes(options.memory) +
         " are free: " +
         (options.bench.is_by_layer ? "make it smaller for this check, with key=value"
                                    : "try its layers alone, with --layers");
}

}  // namespace

Result<std::vector<StageVerdict>> check_contract(const job::Job& job,
                                                 const ContractOptions& options) {
  const auto made = StageBench::create(job, options.bench);
  if (!made.ok()) return made.error();
  const StageBench& bench = *made.value();
  const auto cut = bench.halved();
  if (!cut.ok()) return cut.error();
  const StageBench& halves = *cut.value();
  std::vector<StageVerdict> verdicts;
  bool is_known = options.module.empty();
  for (std::size_t s = 0; s < bench.plan().stages.size(); ++s) {
    const StageId id{s};
    if (!options.module.empty() && !bench.has_module(id, options.module)) continue;
    is_known = true;
    LoneLayer layer;
    if (options.bench.is_by_layer) layer = bench.layer_of(id);
    if (!layer.is_first) continue;
    StageVerdict& verdict = verdicts.emplace_back();
    verdict.stage = observe::stage_words(bench.plan(), bench.plan().at(id));
    verdict.stage_kind = bench.kind_of(id);
    if (options.bench.is_by_layer) {
      verdict.kind = layer.kind;
      verdict.alike = layer.alike;
    }
    verdict.not_tried = reason_against(bench, id, options);
    if (!verdict.not_tried.empty()) continue;
    const auto begin = std::chrono::steady_clock::now();
    check_stage(bench, id, options.bench.is_by_layer ? nullptr : &halves, options, verdict);
    verdict.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  if (!is_known)
    return Error{
        Errc::not_found, "the model has no module '" + options.module + "'", "--module", {}};
  return verdicts;
}

}  // namespace troupe::engine
